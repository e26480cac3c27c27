//! The model: a GPT, declared in a page, and its loss.

use attn::{Error, dfdx::prelude::*, model, ops};

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
}

/// The model with its weights.
pub(crate) type Model = Gpt<f32, Cpu>;
/// Tokens: blocks, and positions in them.
pub(crate) type Tokens = Tensor<(usize, usize), usize, Cpu>;
/// Logits of the next token, for each position of each block.
pub(crate) type Logits<T> = Tensor<(usize, usize, Const<VOCAB>), f32, Cpu, T>;

/// A new model, whose weights depend only on the device's seed.
pub(crate) fn build(device: &Cpu) -> Result<Model, CpuError> {
    device.try_build_module::<Gpt, f32>()
}

/// The mean cross entropy per token, in nats.
pub(crate) fn loss<T: Tape<f32, Cpu>>(
    logits: Logits<T>,
    targets: &Tokens,
) -> Result<Tensor<Rank0, f32, Cpu, T>, Error<CpuError>> {
    ops::try_cross_entropy(logits, targets, Default::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_by_hand() {
        let device = Cpu::default();
        // Half of the vocabulary is impossible, the other half equally likely.
        let row: Vec<f32> = (0..VOCAB)
            .map(|i| if i % 2 == 0 { 0.0 } else { -1e4 })
            .collect();
        let logits = device.tensor_from_vec(row.repeat(2), (1, 2, Const::<VOCAB>));
        let targets = device.tensor_from_vec(vec![0, 8], (1, 2));
        let expected = ((VOCAB / 2) as f32).ln();
        let found = loss(logits, &targets).map(|loss| loss.array());
        // The error of a rounding or two of an f32 near 4.
        assert!(found.is_ok_and(|found| (found - expected).abs() < 1e-6));
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
