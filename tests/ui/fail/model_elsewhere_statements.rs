//! Statements and results in the notation of other languages. Every model has one mistake.

use attn::model;

model! {
    struct Net1<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        # blocks
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net2<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        println!("{:?}", x);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net3<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers, name = "blocks" {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net4<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        };
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net5<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear(layer_norm(x), vocab)
    }
}

model! {
    struct Net6<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<tied = "embedding">(layer_norm(x))
    }
}

model! {
    struct Net7<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<tied = true>(layer_norm(x))
    }
}

model! {
    struct Net8<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<tied = embedding.weight>(layer_norm(x))
    }
}

model! {
    struct Net9<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab, name = "head">(layer_norm(x))
    }
}

model! {
    struct Net10<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab, name = 3>(layer_norm(x))
    }
}

model! {
    struct Net11<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x[:, -1]))
    }
}

model! {
    struct Net12<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        softmax(linear::<vocab>(layer_norm(x)), -1)
    }
}

model! {
    struct Net13<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(cat([x, x]))
    }
}

model! {
    struct Net14<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        MyHead(x)
    }
}

model! {
    struct Net15<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x)), x
    }
}

model! {
    struct Net16<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        module::<Net16, out = [batch, seq, vocab]>(x)
    }
}

fn main() {}
