//! The loss.

use support::reference::naive::softmax;

/// The options of the loss.
#[derive(Clone, Copy)]
pub(super) struct CrossEntropy {
    pub(super) classes: usize,
    /// The fraction of a target that is spread over all classes.
    pub(super) smoothing: f64,
    /// Rows with this target are not counted.
    pub(super) ignored: Option<usize>,
}

impl CrossEntropy {
    /// The mean over the rows of `-Σ_c t_c ln p_c`, where `p = softmax(logits)` and `t` is the smoothed target; and its
    /// derivative with respect to the logits, `(p_c - t_c) / rows`.
    pub(super) fn with_gradient(self, logits: &[f64], targets: &[usize]) -> (f64, Vec<f64>) {
        let counts = |target: &usize| Some(*target) != self.ignored;
        let counted = targets.iter().filter(|target| counts(target)).count() as f64;
        let mut loss = 0.0;
        let mut d_logits = vec![0.0; logits.len()];
        for (row, target) in targets.iter().enumerate().filter(|(_, t)| counts(t)) {
            let first = row * self.classes;
            let shares = softmax(&logits[first..][..self.classes]);
            for (class, share) in shares.into_iter().enumerate() {
                let hit = if class == *target { 1.0 } else { 0.0 };
                let wanted = (1.0 - self.smoothing) * hit + self.smoothing / self.classes as f64;
                loss -= wanted * share.ln() / counted;
                d_logits[first + class] = (share - wanted) / counted;
            }
        }
        (loss, d_logits)
    }
}
