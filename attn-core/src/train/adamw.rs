//! Adam with decoupled weight decay.

use std::collections::BTreeMap;

use super::algorithm::{Algorithm, InvalidSetting, List, Update, decay_of};
use super::{Optimizer, OptimizerState, ParameterInfo};
use crate::{Element, kernel::optim as kernel};

/// The settings of [`AdamW`]. The values are PyTorch's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// The learning rate: 0 or more.
    pub lr: f64,
    /// The decay rates of the means of the gradients and of their squares: in [0, 1).
    pub betas: [f64; 2],
    /// A small number that keeps the divisor away from 0: 0 or more.
    pub epsilon: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter. 0 or more.
    /// Only the matrices of linear maps [decay by default](super::ParameterInfo::decays_by_default): no biases, gains, learned positions, and
    /// tables of embeddings. [`Optimizer::decaying`] changes that.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            weight_decay: 1e-2,
        }
    }
}

/// Adam with decoupled weight decay. For the gradient `g` of a parameter `p`, step `t` is
///
/// ```text
/// m = β₁ m + (1 - β₁) g        v = β₂ v + (1 - β₂) g²
/// p = p - lr λ p - lr (m / (1 - β₁ᵗ)) / (sqrt(v / (1 - β₂ᵗ)) + ε)
/// ```
///
/// `t` counts the steps of the parameter: those in which it was [frozen](Optimizer::freeze) are left out.
///
/// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2. PyTorch: `torch.optim.AdamW`.
///
/// A mean that would be subnormal is set to 0, so that parameters without gradients, such as the embeddings of tokens that no
/// longer occur, do not slow the steps down.
///
/// ```
/// use attn::{dfdx::prelude::*, train::{AdamW, AdamWConfig}};
///
/// let mut model: Tensor<Rank1<2>, f64, Cpu> = Cpu::default().tensor([1.0, -1.0]);
/// let mut optimizer = AdamW::new(AdamWConfig { lr: 0.25, ..Default::default() });
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// optimizer.update(&mut model, &mut gradients)?;
/// // The first step is as long as the learning rate, whatever the gradient.
/// assert!(std::iter::zip(model.array(), [0.75, -0.75]).all(|(a, b)| (a - b).abs() < 1e-8));
/// assert_eq!(optimizer.state.step, 1);
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
pub type AdamW<E> = Optimizer<E, AdamWConfig>;

/// The state of [`AdamW`]: for each parameter the `mean` of its gradients, and the mean of their squares, `square`.
pub type AdamWState<E> = OptimizerState<E, AdamWConfig>;

impl Algorithm for AdamWConfig {
    const NAME: &'static str = "AdamW";
    const LISTS: &'static [List] = &[List::of_elements("mean"), List::of_elements("square")];

    fn lr(&self, _: u64) -> Option<f64> {
        Some(self.lr)
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        self.check_as(["lr", "betas[0]", "betas[1]", "epsilon", "weight_decay"])
    }

    fn keeps(&self, _: &List, _: &ParameterInfo<'_>) -> bool {
        true
    }

    fn begin(&self, _: u64, _: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
        Ok(())
    }

    fn is_elementwise(&self, _: &ParameterInfo<'_>) -> bool {
        true
    }

    fn update<E: Element>(&self, update: Update<'_, E>) {
        let settings = kernel::AdamW {
            lr: self.lr,
            beta1: self.betas[0],
            beta2: self.betas[1],
            epsilon: self.epsilon,
            weight_decay: decay_of(&update, self.weight_decay),
            step: update.count,
        };
        let [mean, square] = Update::lists(update.lists);
        kernel::adamw_step(update.parameter, update.gradient, mean, square, &settings);
    }
}

impl AdamWConfig {
    /// [`check`](Algorithm::check), with names for the rate, both betas, epsilon and the decay: they may be settings of another algorithm.
    pub(super) fn check_as(&self, names: [&'static str; 5]) -> Result<(), InvalidSetting> {
        let [lr, first, second, epsilon, weight_decay] = names;
        InvalidSetting::check_not_negative(lr, self.lr)?;
        InvalidSetting::check_share(first, self.betas[0])?;
        InvalidSetting::check_share(second, self.betas[1])?;
        InvalidSetting::check_not_negative(epsilon, self.epsilon)?;
        InvalidSetting::check_not_negative(weight_decay, self.weight_decay)
    }
}
