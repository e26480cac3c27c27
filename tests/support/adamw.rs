//! AdamW by its paper.

use std::collections::BTreeMap;

/// Its hyperparameters.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub lr: f64,
    pub betas: [f64; 2],
    pub epsilon: f64,
    pub weight_decay: f64,
}

/// The algorithm of the paper, in `f64`, on all parameters by name.
#[derive(Default)]
pub struct Naive(pub BTreeMap<String, [Vec<f64>; 2]>);

impl Naive {
    pub fn step(
        &mut self,
        settings: Settings,
        step: i32,
        name: &str,
        p: &mut [f64],
        g: &[f64],
        decays: bool,
    ) {
        let [beta1, beta2] = settings.betas;
        let zeros = || [vec![0.0; p.len()], vec![0.0; p.len()]];
        let [m, v] = self.0.entry(name.into()).or_insert_with(zeros);
        for i in 0..p.len() {
            m[i] = beta1 * m[i] + (1.0 - beta1) * g[i];
            v[i] = beta2 * v[i] + (1.0 - beta2) * g[i] * g[i];
            let mean = m[i] / (1.0 - beta1.powi(step));
            let square = v[i] / (1.0 - beta2.powi(step));
            if decays {
                p[i] -= settings.lr * settings.weight_decay * p[i];
            }
            p[i] -= settings.lr * mean / (square.sqrt() + settings.epsilon);
        }
    }
}
