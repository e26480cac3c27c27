//! Layers in the notation of other libraries. Every model has one mistake.

use attn::model;

model! {
    struct Net1<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net2<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let q, k = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net3<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let hidden = 4 * d_model; let mut x = embedding::<vocab, d_model>(tokens); x = feed_forward::<hidden>(x);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net4<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding(vocab, d_model)(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net5<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding[vocab, d_model](tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net6<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding(tokens, vocab, d_model);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net7<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = nn::Embedding(vocab, d_model)(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net8<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = attn::embedding::<vocab, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net9<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<num_embeddings = vocab, d_model = d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net10<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, embedding_dim = d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net11<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + sinusoidal_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net12<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) * tan(d_model);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net13<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) * consts::SCALE;
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net14<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads>(layer_norm(x, 1e-5));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net15<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads>(dropout(layer_norm(x), 0.1));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net16<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads>(layer_norm(x).dropout(0.1));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net17<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + dropout::<dropout>(x);
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net18<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, causal>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net19<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, causal = true>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net20<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads>(layer_norm(x), mask = causal);
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net21<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x), padding = tokens);
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net22<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + feed_forward::<128, gelu_tanh>(x);
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net23<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x ** 2;
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net24<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + layer_norm(x)?;
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net25<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads>(layer_norm(x)) { fn mask(q, kv_idx) { kv_idx <= q } };
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net26<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = |q, k| q >= k>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Net27<vocab = 65, d_model = 32, heads = 4, layers = 2, max_len = 64>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, normalizer = relu^2>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

fn main() {}
