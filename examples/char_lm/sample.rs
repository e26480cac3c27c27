//! Writing text with the model: one character after the other, each chosen from the model's odds.

use crate::{
    cli::Sampling,
    corpus::{Token, Vocabulary},
    model::Model,
};
use anyhow::{Context, Result, ensure};
use attn::dfdx::prelude::*;
use rand::{
    Rng,
    distributions::{Distribution, WeightedIndex},
    rngs::StdRng,
};
use std::io::Write;

/// Continues a prompt with a model that looks back over `block` characters.
pub(crate) struct Sampler<'a> {
    pub(crate) model: &'a Model,
    pub(crate) vocabulary: &'a Vocabulary,
    pub(crate) device: &'a Cpu,
    pub(crate) block: usize,
}

impl Sampler<'_> {
    /// Writes the prompt and what follows it to `out`, as it comes.
    pub(crate) fn write(
        &self,
        prompt: &[Token],
        sampling: &Sampling,
        rng: &mut StdRng,
        out: &mut impl Write,
    ) -> Result<()> {
        let mut text = prompt.to_vec();
        for &token in prompt {
            write!(out, "{}", self.vocabulary.decode(token))?;
        }
        for _ in 0..sampling.max_new_tokens {
            let logits = self.next_logits(&text)?;
            let token = choose(&logits, sampling.temperature, sampling.top_k, rng)? as Token;
            text.push(token);
            write!(out, "{}", self.vocabulary.decode(token))?;
            out.flush()?;
        }
        writeln!(out)?;
        Ok(())
    }

    /// The scores of what may follow `text`: only its last block can be seen, and only characters
    /// that the vocabulary uses count.
    fn next_logits(&self, text: &[Token]) -> Result<Vec<f32>> {
        let seen = &text[text.len().saturating_sub(self.block)..];
        let tokens = seen.iter().map(|&t| usize::from(t)).collect();
        let x = self.device.try_tensor_from_vec(tokens, (1, seen.len()))?;
        let mut logits = self.model.try_forward(x)?.as_vec();
        let last = logits.len() - crate::model::VOCAB;
        logits.drain(..last);
        logits.truncate(self.vocabulary.len());
        Ok(logits)
    }
}

/// Draws one of the likeliest `top_k` choices, with probabilities softmax(logits / temperature).
fn choose(
    logits: &[f32],
    temperature: f64,
    top_k: Option<usize>,
    rng: &mut impl Rng,
) -> Result<usize> {
    ensure!(
        logits.iter().all(|x| x.is_finite()),
        "the model's scores are not numbers: its weights are damaged"
    );
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order.truncate(top_k.unwrap_or(logits.len()));
    let best = *order.first().context("there is nothing to choose from")?;
    if temperature == 0.0 {
        return Ok(best);
    }
    let over = |i: usize| f64::from(logits[i]) - f64::from(logits[best]);
    let weights = order.iter().map(|&i| (over(i) / temperature).exp());
    Ok(order[WeightedIndex::new(weights)?.sample(rng)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const LOGITS: [f32; 4] = [1.0, 3.0, 2.0, -5.0];

    fn counts(temperature: f64, top_k: Option<usize>) -> Result<[usize; 4]> {
        let mut rng = StdRng::seed_from_u64(5);
        let mut counts = [0; 4];
        for _ in 0..10_000 {
            counts[choose(&LOGITS, temperature, top_k, &mut rng)?] += 1;
        }
        Ok(counts)
    }

    #[test]
    fn zero_temperature_and_top_one_take_the_likeliest() -> Result<()> {
        assert_eq!(counts(0.0, None)?, [0, 10_000, 0, 0]);
        assert_eq!(counts(1.0, Some(1))?, [0, 10_000, 0, 0]);
        // So cold that exp() of every other one is 0.
        assert_eq!(counts(1e-300, None)?, [0, 10_000, 0, 0]);
        Ok(())
    }

    #[test]
    fn top_k_leaves_out_the_rest_and_more_than_all_is_all() -> Result<()> {
        let two = counts(1.0, Some(2))?;
        assert_eq!((two[0], two[3]), (0, 0));
        // e / (1 + e) = 0.731 of 10,000 draws; 4 standard deviations are 177.
        assert!(two[1].abs_diff(7311) < 177, "{two:?}");
        assert_eq!(counts(1.0, Some(99))?, counts(1.0, None)?);
        Ok(())
    }

    #[test]
    fn heat_evens_the_odds() -> Result<()> {
        let hot = counts(1e9, None)?;
        // 2,500 each; 4 standard deviations are 173.
        assert!(hot.iter().all(|n| n.abs_diff(2500) < 173), "{hot:?}");
        Ok(())
    }

    #[test]
    fn scores_that_are_no_numbers_are_an_error() {
        let mut rng = StdRng::seed_from_u64(0);
        assert!(choose(&[0.0, f32::NAN], 1.0, None, &mut rng).is_err());
        assert!(choose(&[], 1.0, None, &mut rng).is_err());
    }
}
