//! The model: a GPT, declared in a page, and its loss.

use attn::{dfdx::prelude::*, model};

/// The size of the vocabulary: all bytes, or pieces of words. A text with fewer tokens leaves some unused.
pub(crate) const VOCAB: usize = if cfg!(feature = "tokenizers") {
    1024
} else {
    256
};
/// The number of learned positions, so the maximum length of a block.
pub(crate) const BLOCK: usize = 64;
/// The number of Transformer blocks.
pub(crate) const LAYERS: usize = 3;
/// The width of the model.
pub(crate) const WIDTH: usize = 64;
/// The heads of each attention.
pub(crate) const HEADS: usize = 4;

model! {
    /// Every position attends to itself and to those before it.
    pub(crate) struct Gpt<d_model = WIDTH>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
        let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<BLOCK, d_model>(tokens);
        repeat LAYERS {
            x += attention::<heads = HEADS, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<VOCAB, bias = false>(layer_norm(x))
    }

    /// The mean cross entropy per token, in nats.
    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

/// The model with its weights.
pub(crate) type Model = Gpt<f32, Cpu>;

/// A new model, whose weights depend only on the device's seed.
pub(crate) fn build(device: &Cpu) -> Result<Model, CpuError> {
    device.try_build_module::<Gpt, f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attn::Error;

    #[test]
    fn the_loss_by_hand() -> Result<(), Error<CpuError>> {
        let device = Cpu::seed_from_u64(0);
        let model = build(&device)?;
        let ids = |ids: [usize; 2]| device.tensor_from_vec(ids.to_vec(), (1, 2));
        let logits = model.try_forward(ids([1, 2]))?.as_vec();
        let of = |row: usize, target: usize| {
            let row = &logits[row * VOCAB..][..VOCAB];
            let sum: f32 = row.iter().map(|logit| logit.exp()).sum();
            sum.ln() - row[target]
        };
        let expected = (of(0, 2) + of(1, 8)) / 2.0;
        let found = model.try_loss((ids([1, 2]), ids([2, 8])))?.array();
        // The rounding of sums of 256 numbers, of a loss near 6.
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        Ok(())
    }

    #[test]
    fn a_token_changes_nothing_that_came_before_it() -> Result<(), Error<CpuError>> {
        let device = Cpu::seed_from_u64(0);
        let model = build(&device)?;
        let logits = |text: [usize; 4]| {
            let x = device.tensor_from_vec(text.to_vec(), (1, 4));
            Ok::<_, Error<CpuError>>(model.try_forward(x)?.as_vec())
        };
        let a = logits([1, 2, 3, 4])?;
        let b = logits([1, 2, 9, 4])?;
        assert_eq!(a[..2 * VOCAB], b[..2 * VOCAB]);
        assert_ne!(a[2 * VOCAB..], b[2 * VOCAB..]);
        Ok(())
    }
}
