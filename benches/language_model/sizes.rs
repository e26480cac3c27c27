//! The two models of the benches, declared and in plain dfdx.

use attn::{dfdx::prelude::*, model};

#[path = "plain.rs"]
mod plain;
pub(crate) use plain::Plain;

pub(crate) const VOCAB: usize = 65;

/// A model and its batch.
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(crate) layers: usize,
    pub(crate) d_model: usize,
    pub(crate) length: usize,
    pub(crate) batch: usize,
}

pub(crate) const SMALL: Size = Size {
    name: "small",
    layers: 4,
    d_model: 128,
    length: 64,
    batch: 12,
};
pub(crate) const MEDIUM: Size = Size {
    name: "medium",
    layers: 6,
    d_model: 384,
    length: 256,
    batch: 8,
};

impl Size {
    /// A batch of tokens.
    pub(crate) fn tokens(&self) -> Tensor<(usize, usize), usize, Cpu> {
        let ids = (0..self.batch * self.length).map(|i| (i * i + 7) % VOCAB);
        Cpu::default().tensor_from_vec(ids.collect(), (self.batch, self.length))
    }

    /// The operations of a training step, by those of the products of a forward pass: causal attention counts half of its square, twice
    /// forward and five times backward.
    pub(crate) fn work(&self, forward: u64) -> f64 {
        let pairs = (self.batch * self.length * self.length) as f64;
        let scores = 4.0 * pairs * (self.layers * self.d_model) as f64;
        3.0 * (forward as f64 - scores) + 3.5 * scores / 2.0
    }
}

/// Declares a GPT of this size, and the same in plain dfdx.
macro_rules! gpt {
    ($Name:ident, $Plain:ident, $size:ident, heads = $heads:literal) => {
        model! {
            pub(crate) struct $Name<d_model = { $size.d_model }, layers = { $size.layers }, max_len = { $size.length }>;

            fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
                let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
                repeat layers {
                    x += attention::<$heads, d_model, mask = causal>(layer_norm(x));
                    x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
                }
                linear::<VOCAB>(layer_norm(x))
            }

            fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
                cross_entropy(forward(tokens), targets)
            }
        }

        pub(crate) type $Plain = Plain<
            VOCAB,
            { $size.length },
            { $size.d_model },
            $heads,
            { 4 * $size.d_model },
            { $size.layers },
        >;
    };
}

gpt!(Small, PlainSmall, SMALL, heads = 4);
gpt!(Medium, PlainMedium, MEDIUM, heads = 6);
