//! Blocks of text for the model: random ones for training, and fixed ones for validation.

use crate::model::Tokens;
use attn::dfdx::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::ops::Range;

/// Blocks of equal length, and the next token after each of their tokens.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) inputs: Tokens,
    pub(crate) targets: Tokens,
}

impl Batch {
    /// `count` blocks of `block` tokens from random places of `text`.
    pub(crate) fn random(
        text: &[usize],
        (count, block): (usize, usize),
        rng: &mut StdRng,
        device: &Cpu,
    ) -> Result<Self, CpuError> {
        let starts = (0..count).map(|_| rng.gen_range(0..text.len() - block));
        let blocks: Vec<_> = starts.map(|at| at..at + block).collect();
        Self::of(text, &blocks, device)
    }

    /// The blocks at these places of `text`, which must have equal lengths.
    pub(crate) fn of(
        text: &[usize],
        blocks: &[Range<usize>],
        device: &Cpu,
    ) -> Result<Self, CpuError> {
        let shape = (blocks.len(), blocks.first().map_or(0, Range::len));
        let tokens = |ahead: usize| {
            let all = blocks
                .iter()
                .flat_map(|b| &text[b.start + ahead..b.end + ahead]);
            device.try_tensor_from_vec(all.copied().collect(), shape)
        };
        Ok(Self {
            inputs: tokens(0)?,
            targets: tokens(1)?,
        })
    }
}

/// The random generator of a step. It does not depend on the steps before, so resumed training draws the same batches.
pub(crate) fn rng(seed: u64, step: usize) -> StdRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(step as u64).to_le_bytes());
    StdRng::from_seed(bytes)
}

/// Cuts a text of `len` tokens into blocks that together predict each token but the first. The last block may be shorter.
pub(crate) fn blocks(len: usize, block: usize) -> Vec<Range<usize>> {
    let asked = len.saturating_sub(1);
    (0..asked)
        .step_by(block)
        .map(|at| at..asked.min(at + block))
        .collect()
}

/// At most `count` of `blocks`, evenly spread.
pub(crate) fn spread(blocks: Vec<Range<usize>>, count: usize) -> Vec<Range<usize>> {
    if blocks.len() <= count {
        return blocks;
    }
    (0..count)
        .map(|i| blocks[i * blocks.len() / count].clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_inputs_one_character_on() -> Result<(), CpuError> {
        let device = Cpu::default();
        let text: Vec<usize> = (0..50).collect();
        let mut rng = StdRng::seed_from_u64(1);
        let batch = Batch::random(&text, (40, 9), &mut rng, &device)?;
        assert_eq!(*batch.inputs.shape(), (40, 9));
        let x = batch.inputs.as_vec();
        let y = batch.targets.as_vec();
        assert!(x.iter().zip(&y).all(|(x, y)| x + 1 == *y));
        Ok(())
    }

    #[test]
    fn the_shortest_text_has_one_place_for_a_block() -> Result<(), CpuError> {
        let mut rng = StdRng::seed_from_u64(1);
        let batch = Batch::random(&[7, 8, 9], (3, 2), &mut rng, &Cpu::default())?;
        assert_eq!(batch.targets.as_vec(), [8, 9, 8, 9, 8, 9]);
        Ok(())
    }

    #[test]
    fn seeds_and_steps_have_random_numbers_of_their_own() {
        let draw = |seed, step| rng(seed, step).r#gen::<u64>();
        let all = [draw(1, 1), draw(1, 2), draw(2, 1), draw(2, 2)];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), 4);
        assert_eq!(draw(1, 2), all[1]);
    }

    #[test]
    fn blocks_ask_for_every_token_but_the_first_once() {
        assert_eq!(blocks(10, 4), [0..4, 4..8, 8..9]);
        assert_eq!(blocks(9, 4), [0..4, 4..8]);
        assert!(blocks(1, 4).is_empty());
    }

    #[test]
    fn spreading_starts_at_the_first_and_repeats_none() {
        assert_eq!(spread(blocks(101, 10), 3), [0..10, 30..40, 60..70]);
        assert_eq!(spread(blocks(101, 10), 99).len(), 10);
    }
}
