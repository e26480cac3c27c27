//! Baselines from counts of tokens: a model has to have lower losses.

use crate::corpus::Corpus;
use std::ops::Range;

/// Cross-entropies on the validation split, in nats per token.
#[derive(Debug)]
pub(crate) struct Baselines {
    /// The loss of the token frequencies.
    pub(crate) unigram: f64,
    /// The loss of the frequencies of pairs of tokens.
    pub(crate) bigram: f64,
}

impl Baselines {
    /// Counts tokens in the training split, and measures on the `blocks` of the validation split that the model is measured on:
    /// the same tokens, each with the one before it.
    pub(crate) fn of(corpus: &Corpus, blocks: impl Iterator<Item = Range<usize>>) -> Self {
        let size = corpus.vocabulary.len();
        let text = &corpus.validation;
        let pairs: Vec<_> = blocks
            .flat_map(|b| text[b.start..=b.end].windows(2))
            .map(|pair| (pair[0], pair[1]))
            .collect();
        Self {
            unigram: unigram(&corpus.train, &pairs, size),
            bigram: bigram(&corpus.train, &pairs, size),
        }
    }
}

fn unigram(train: &[usize], pairs: &[(usize, usize)], size: usize) -> f64 {
    let mut counts = vec![0; size];
    for &c in train {
        counts[c] += 1;
    }
    let logs = smoothed_logs(&counts);
    -mean(pairs.iter().map(|&(_, c)| logs[c]))
}

fn bigram(train: &[usize], pairs: &[(usize, usize)], size: usize) -> f64 {
    let mut counts = vec![vec![0; size]; size];
    for pair in train.windows(2) {
        counts[pair[0]][pair[1]] += 1;
    }
    let logs: Vec<_> = counts.iter().map(|row| smoothed_logs(row)).collect();
    -mean(pairs.iter().map(|&(before, c)| logs[before][c]))
}

/// Logarithms of the frequencies, with one added to every count (Laplace), so that unseen tokens are unlikely instead of
/// impossible.
fn smoothed_logs(counts: &[u64]) -> Vec<f64> {
    let total = counts.iter().sum::<u64>() + counts.len() as u64;
    counts
        .iter()
        .map(|&n| ((n + 1) as f64 / total as f64).ln())
        .collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    values.sum::<f64>() / n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Result;
    use attn::text::Vocabulary;

    // Sums of a few logarithms, which differ by rounding only.
    fn assert_close(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 1e-12,
            "{found} is not {expected}"
        );
    }

    #[test]
    fn unigram_by_hand() {
        // Counts 3, 1, 0 become 4/7, 2/7, 1/7.
        let loss = unigram(&[0, 0, 1, 0], &[(2, 0), (0, 1), (1, 2)], 3);
        let [a, b, c] = [4.0, 2.0, 1.0].map(|n: f64| (n / 7.0).ln());
        assert_close(loss, -(a + b + c) / 3.0);
    }

    #[test]
    fn bigram_by_hand() {
        // Pairs 00, 01, 10: after 0 the counts are 1, 1 (2/4, 2/4), after 1 they are 1, 0 (2/3, 1/3).
        let loss = bigram(&[0, 0, 1, 0], &[(0, 1), (1, 1), (1, 0)], 2);
        let [a, b, c] = [1.0 / 2.0, 1.0 / 3.0, 2.0 / 3.0].map(f64::ln);
        assert_close(loss, -(a + b + c) / 3.0);
    }

    #[test]
    fn a_text_that_alternates_is_hard_by_letter_and_easy_by_pair() -> Result<()> {
        let corpus = Corpus::new(&"ab".repeat(1000), Vocabulary::characters("ab")?, 8)?;
        let found = Baselines::of(&corpus, [0..8, 100..199].into_iter());
        // 900 and 899 pairs of either kind, none of the other: ln(902/901) and less.
        assert!((found.unigram - 2f64.ln()).abs() < 1e-6);
        assert!((found.bigram - (902f64 / 901.0).ln()).abs() < 1e-5);
        Ok(())
    }

    #[test]
    fn one_token_alone_is_no_surprise() {
        assert_close(unigram(&[0; 9], &[(0, 0)], 1), 0.0);
        assert_close(bigram(&[0; 9], &[(0, 0)], 1), 0.0);
    }
}
