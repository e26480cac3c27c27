//! A distribution over tokens, and filters that reduce it.

use std::cmp::Ordering;

/// Tokens and their probabilities.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distribution {
    tokens: Vec<(usize, f64)>,
}

impl Distribution {
    /// This token alone.
    pub(super) fn certain(token: usize) -> Self {
        Self {
            tokens: vec![(token, 1.0)],
        }
    }

    /// The token, if there is only one.
    pub(super) fn only(&self) -> Option<usize> {
        match self.tokens[..] {
            [(token, _)] => Some(token),
            _ => None,
        }
    }

    /// `softmax(logits / temperature)`
    pub(super) fn softmax(logits: &[f64], temperature: f64) -> Self {
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights = logits.iter().map(|x| ((x - most) / temperature).exp());
        let mut tokens: Vec<_> = weights.enumerate().collect();
        let sum: f64 = tokens.iter().map(|(_, weight)| weight).sum();
        tokens.iter_mut().for_each(|(_, weight)| *weight /= sum);
        Self { tokens }
    }

    /// Keeps the `count` likeliest tokens.
    pub(super) fn keep_most(&mut self, count: usize) {
        let count = count.max(1);
        if count < self.tokens.len() {
            // The order of the others does not matter.
            self.tokens.select_nth_unstable_by(count, likelier);
            self.tokens.truncate(count);
        }
    }

    /// Keeps the fewest of the likeliest tokens whose sum is at least this fraction of the remaining sum.
    pub(super) fn keep_sum(&mut self, share: f64) {
        if share >= 1.0 {
            return;
        }
        self.tokens.sort_unstable_by(likelier);
        let enough = share * self.sum();
        let mut sum = 0.0;
        let fewer = self.tokens.iter().take_while(|(_, p)| {
            let is_missing = sum < enough;
            sum += p;
            is_missing
        });
        let count = fewer.count().max(1);
        self.tokens.truncate(count);
    }

    /// Keeps the tokens that are at least this fraction as likely as the likeliest one.
    pub(super) fn keep_share(&mut self, share: f64) {
        let most = self.tokens.iter().map(|(_, p)| *p).fold(0.0, f64::max);
        self.tokens.retain(|(_, p)| *p >= share * most);
    }

    /// Draws a token by inverse transform: `at` is a number from 0 to 1, and the tokens are in ascending order.
    pub(super) fn draw(mut self, at: f64) -> usize {
        self.tokens.sort_unstable_by_key(|(token, _)| *token);
        let mut left = at * self.sum();
        let mut tokens = self.tokens.iter();
        let found = tokens.find(|(_, p)| {
            left -= p;
            left < 0.0
        });
        // A rounded sum may be slightly too small. A token of probability 0 is excluded.
        let last = self.tokens.iter().rfind(|(_, p)| *p > 0.0);
        found.or(last).map_or(0, |(token, _)| *token)
    }

    /// The same with a sum of 1, and the tokens in ascending order.
    pub(super) fn normalized(mut self) -> Self {
        self.tokens.sort_unstable_by_key(|(token, _)| *token);
        let sum = self.sum();
        self.tokens.iter_mut().for_each(|(_, p)| *p /= sum);
        self
    }

    /// The probability of a token of a [normalised](Self::normalized) distribution.
    pub(super) fn probability(&self, token: usize) -> f64 {
        let found = self
            .tokens
            .binary_search_by_key(&token, |(token, _)| *token);
        found.map_or(0.0, |place| self.tokens[place].1)
    }

    /// `max(0, p - q)`, of normalised distributions. If nothing is left but rounding errors, `p`.
    pub(super) fn without(&self, q: &Self) -> Self {
        let tokens = self.tokens.iter();
        let left = tokens.map(|(token, p)| (*token, p - q.probability(*token)));
        let left = Self {
            tokens: left.filter(|(_, p)| *p > 0.0).collect(),
        };
        match left.tokens.is_empty() {
            true => self.clone(),
            false => left,
        }
    }

    fn sum(&self) -> f64 {
        self.tokens.iter().map(|(_, p)| p).sum()
    }
}

/// Compares by probability, or by its logarithm, the likelier token first. Of equal ones the smaller token is first.
pub(super) fn likelier((a, p): &(usize, f64), (b, q): &(usize, f64)) -> Ordering {
    q.total_cmp(p).then(a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probabilities 0.1, 0.4, 0.2, 0.3.
    fn some() -> Distribution {
        let logits = [0.1_f64, 0.4, 0.2, 0.3].map(f64::ln);
        Distribution::softmax(&logits, 1.0)
    }

    fn tokens(of: &Distribution) -> Vec<usize> {
        let mut tokens: Vec<_> = of.tokens.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        tokens
    }

    #[test]
    fn ties_keep_the_first_tokens() {
        for count in 1..4 {
            let mut of = Distribution::softmax(&[1.0, 2.0, 2.0, 2.0], 1.0);
            of.keep_most(count);
            assert_eq!(tokens(&of), [1, 2, 3][..count]);
        }
    }

    #[test]
    fn large_logits_and_low_temperatures_do_not_overflow() {
        let of = Distribution::softmax(&[-1e300, 1e300, 0.0], 1e-300);
        assert_eq!(of.tokens[1], (1, 1.0));
        assert_eq!(of.draw(0.999), 1);
    }

    #[test]
    fn filters_keep_the_likeliest_tokens() {
        for (count, kept) in [(0, 1), (1, 1), (3, 3), (9, 4)] {
            let mut of = some();
            of.keep_most(count);
            assert_eq!(of.tokens.len(), kept);
        }
        for (share, kept) in [(0.0, 1), (0.39, 1), (0.5, 2), (0.71, 3), (1.0, 4)] {
            let mut of = some();
            of.keep_sum(share);
            assert_eq!(of.tokens.len(), kept, "{share}");
        }
        for (share, kept) in [(0.0, 4), (0.4, 3), (0.6, 2), (0.76, 1), (1.0, 1)] {
            let mut of = some();
            of.keep_share(share);
            assert_eq!(of.tokens.len(), kept, "{share}");
        }
    }

    #[test]
    fn fractions_are_of_the_remaining_sum() {
        let mut of = some();
        of.keep_most(2);
        // 0.4 of 0.7.
        of.keep_sum(0.57);
        assert_eq!(tokens(&of), [1]);
    }

    #[test]
    fn differences_keep_what_is_likelier() {
        let mut of = some();
        of.keep_most(2);
        let of = of.normalized();
        assert!((of.probability(1) - 4.0 / 7.0).abs() < 1e-15);
        assert_eq!(of.probability(0), 0.0);
        let left = of.without(&some().normalized());
        assert_eq!(tokens(&left), [1, 3]);
        assert!((left.tokens[0].1 - (4.0 / 7.0 - 0.4)).abs() < 1e-15);
        assert_eq!(of.without(&of), of);
    }

    #[test]
    fn inverse_transform_draws_by_cumulative_probability() {
        let of = some();
        let places = [
            (0.0, 0),
            (0.09, 0),
            (0.11, 1),
            (0.49, 1),
            (0.51, 2),
            (0.71, 3),
            (1.0, 3),
        ];
        for (at, token) in places {
            assert_eq!(of.clone().draw(at), token, "{at}");
        }
        let excluded = Distribution::softmax(&[f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY], 1.0);
        assert_eq!([0.0, 1.0].map(|at| excluded.clone().draw(at)), [1, 1]);
    }
}
