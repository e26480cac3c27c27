//! Inputs and results. Every model has one mistake.

use attn::model;

model! {
    struct Net1<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch; seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net2<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> Tensor {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net3<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[_, seq]) -> [_, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net4<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[-1, seq]) -> [-1, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net5<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[..]) -> [.., vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net6<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[None, seq]) -> [None, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

fn main() {}
