//! Blocks that another crate uses.

/// Blocks without a model.
pub mod blocks {
    renamed::model! {
        /// Two linear maps and a gate.
        pub block mlp(x: [.., n], hidden = { 2 * n }, p = 0.25) -> [.., n] {
            param gain: [n] = 0.5;
            buffer ramp: [n] = |i| (i + 1) / n;
            let y = dropout::<p>(linear::<n, name = down>(swish(linear::<hidden, name = up>(x))));
            gain * y + ramp * x
        }

        block swish(x: [..]) -> [..] {
            let y = x * sigmoid(x);
            y
        }

        /// The parts of a value, and their mean.
        pub block parts(x: [.., n]) -> ([.., n], [..]) {
            let (a, b) = split(linear::<{ 2 * n }>(x));
            (a * tanh(b), mean::<n>(b))
        }

        pub block causal(x: [batch, seq, n], heads, slope = 0.5) -> [batch, seq, n] {
            attention::<heads, name = heads_of>(x) {
                param decay: [heads] = ones;
                fn score(score, h, q_idx, kv_idx) { score - decay[h] * (q_idx - kv_idx) as f32 }
                fn mask(q_idx, kv_idx) { kv_idx <= q_idx }
            } + slope * x
        }
    }
}

/// A model whose blocks others use, too.
pub mod gpt {
    use renamed::model;

    model! {
        use crate::blocks::{causal, mlp as feed};

        /// A small one.
        pub struct Small<vocab = 11, d_model = 8, heads = 2, hidden = { 3 * d_model }>;

        /// One of its layers.
        pub block layer(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
            let x = x + causal::<heads>(norm(x));
            x + feed::<hidden>(norm(x))
        }

        block norm(x: [.., d_model]) -> [.., d_model] {
            (layer_norm(x) - mean::<d_model>(x)) / sqrt(d_model)
        }

        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d_model>(tokens);
            repeat 2 { x = layer(x); }
            linear::<vocab>(x)
        }
    }
}

pub use blocks::parts as halves;
