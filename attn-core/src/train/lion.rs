//! Lion.

use std::collections::BTreeMap;

use super::algorithm::{Algorithm, InvalidSetting, List, Update, decay_of};
use super::{Optimizer, ParameterInfo};
use crate::{Element, kernel::optim as kernel};

/// The settings of [`Lion`]. The defaults are those of its authors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionConfig {
    /// The learning rate: 0 or more. That of AdamW is three to ten times greater.
    pub lr: f64,
    /// How much of the momentum is in the direction of a step, and how much of it stays: in [0, 1).
    pub betas: [f64; 2],
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter. 0 or more.
    /// Only the matrices of linear maps [decay by default](super::ParameterInfo::decays_by_default): no biases, gains, learned positions, and
    /// tables of embeddings. [`Optimizer::decaying`] changes that.
    pub weight_decay: f64,
}

impl Default for LionConfig {
    fn default() -> Self {
        Self {
            lr: 1e-4,
            betas: [0.9, 0.99],
            weight_decay: 0.0,
        }
    }
}

/// Lion: a step of the same length for every number. For the gradient `g` of a parameter `p`, a step is
///
/// ```text
/// p = p - lr (sign(β₁ m + (1 - β₁) g) + λ p)        m = β₂ m + (1 - β₂) g
/// ```
///
/// Chen et al., "Symbolic discovery of optimization algorithms" (2023), program 1. The package `lion-pytorch`: `Lion`.
///
/// ```
/// use attn::{dfdx::prelude::*, train::{Lion, LionConfig}};
///
/// let mut model: Tensor<Rank1<2>, f64, Cpu> = Cpu::default().tensor([1.0, -3.0]);
/// let mut optimizer = Lion::new(LionConfig { lr: 0.25, ..Default::default() });
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// optimizer.update(&mut model, &mut gradients)?;
/// assert_eq!(model.array(), [0.75, -2.75]);
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
pub type Lion<E> = Optimizer<E, LionConfig>;

impl Algorithm for LionConfig {
    const NAME: &'static str = "Lion";
    const LISTS: &'static [List] = &[List::of_elements("momentum")];

    fn lr(&self, _: u64) -> Option<f64> {
        Some(self.lr)
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::check_not_negative("lr", self.lr)?;
        InvalidSetting::check_share("betas[0]", self.betas[0])?;
        InvalidSetting::check_share("betas[1]", self.betas[1])?;
        InvalidSetting::check_not_negative("weight_decay", self.weight_decay)
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
        let settings = kernel::Lion {
            lr: self.lr,
            beta1: self.betas[0],
            beta2: self.betas[1],
            weight_decay: decay_of(&update, self.weight_decay),
        };
        let [momentum] = Update::lists(update.lists);
        kernel::lion_step(update.parameter, update.gradient, momentum, &settings);
    }
}
