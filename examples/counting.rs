//! The losses of counting, which a language model has to beat.

/// Cross entropies of held-out pairs, in nats per token: of the frequencies of the tokens in a text, and of its pairs of tokens. The tokens
/// are less than `size`.
pub(crate) fn losses(text: &[usize], held_out: &[(usize, usize)], size: usize) -> [f64; 2] {
    let mut tokens = vec![0; size];
    let mut pairs = vec![vec![0; size]; size];
    for &token in text {
        tokens[token] += 1;
    }
    for pair in text.windows(2) {
        pairs[pair[0]][pair[1]] += 1;
    }
    let tokens = logs(&tokens);
    let pairs: Vec<_> = pairs.iter().map(|counts| logs(counts)).collect();
    [
        -mean(held_out.iter().map(|&(_, token)| tokens[token])),
        -mean(held_out.iter().map(|&(before, token)| pairs[before][token])),
    ]
}

/// Logarithms of the frequencies, with one added to every count (Laplace), so that what does not occur is unlikely instead of impossible.
fn logs(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>() + counts.len() as u64;
    let shares = counts.iter().map(|&n| (n + 1) as f64 / all as f64);
    shares.map(f64::ln).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    values.sum::<f64>() / n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    // Sums of a few logarithms, which differ by rounding only.
    fn assert_close(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 1e-12,
            "{found} is not {expected}"
        );
    }

    #[test]
    fn tokens_by_hand() {
        // Counts 3, 1, 0 become 4/7, 2/7, 1/7.
        let [loss, _] = losses(&[0, 0, 1, 0], &[(2, 0), (0, 1), (1, 2)], 3);
        let [a, b, c] = [4.0, 2.0, 1.0].map(|n: f64| (n / 7.0).ln());
        assert_close(loss, -(a + b + c) / 3.0);
    }

    #[test]
    fn pairs_by_hand() {
        // Pairs 00, 01, 10: after 0 the counts are 1, 1 (2/4, 2/4), after 1 they are 1, 0 (2/3, 1/3).
        let [_, loss] = losses(&[0, 0, 1, 0], &[(0, 1), (1, 1), (1, 0)], 2);
        let [a, b, c] = [1.0 / 2.0, 1.0 / 3.0, 2.0 / 3.0].map(f64::ln);
        assert_close(loss, -(a + b + c) / 3.0);
    }

    #[test]
    fn a_text_that_alternates_is_hard_by_token_and_easy_by_pair() {
        let text: Vec<usize> = (0..1800).map(|i| i % 2).collect();
        let [token, pair] = losses(&text, &[(0, 1), (1, 0), (0, 1), (1, 0)], 2);
        // 900 and 899 pairs of either kind, none of the other: ln(902/901) and less.
        assert!((token - 2_f64.ln()).abs() < 1e-6);
        assert!((pair - (902_f64 / 901.0).ln()).abs() < 1e-5);
    }

    #[test]
    fn one_token_alone_is_no_surprise() {
        let [token, pair] = losses(&[0; 9], &[(0, 0)], 1);
        assert_close(token, 0.0);
        assert_close(pair, 0.0);
    }
}
