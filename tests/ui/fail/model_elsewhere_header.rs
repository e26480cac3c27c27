//! Tokens after the name of a model. Every model has one mistake.

use attn::model;

model! {
    struct Net1 { vocab: 65, d_model: 32, heads: 4, layers: 2, max_len: 64 }
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net2(vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64);
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net3<vocab: usize = 65, d_model: usize = 32, heads: usize = 4, layers: usize = 2, max_len: usize = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net4<const vocab: usize = 65, const d_model: usize = 32, const heads: usize = 4, const layers: usize = 2, const max_len: usize = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net5<vocab = 65, d_model = 32.0, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net6<vocab = "65", d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net7<vocab = 65, d_model = 8 * heads, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net8<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64, mask = causal>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net9<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64, dropout = 0.1>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

fn main() {}
