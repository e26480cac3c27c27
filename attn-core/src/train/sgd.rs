//! Stochastic gradient descent.

use std::collections::BTreeMap;

use super::algorithm::{Algorithm, InvalidSetting, List, Update, decay_of};
use super::{Optimizer, ParameterInfo};
use crate::{Element, kernel::optim as kernel};

/// The settings of [`Sgd`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdConfig {
    /// The learning rate: 0 or more.
    pub lr: f64,
    /// How much of the momentum of the step before stays: in [0, 1).
    pub momentum: f64,
    /// How much of the gradient does not enter the momentum: in [0, 1).
    pub dampening: f64,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
    /// This multiple of a parameter is added to its gradient: 0 or more.
    /// Only the matrices of linear maps [decay by default](super::ParameterInfo::decays_by_default): no biases, gains, learned positions, and
    /// tables of embeddings. [`Optimizer::decaying`] changes that.
    pub weight_decay: f64,
}

impl Default for SgdConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }
    }
}

/// Stochastic gradient descent. For the gradient `g` of a parameter `p`, with the momentum `μ` and the dampening `τ`, a step is
///
/// ```text
/// g = g + λ p        m = μ m + (1 - τ) g        in the first step m = g
/// p = p - lr m        with nesterov p = p - lr (g + μ m)
/// ```
///
/// Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013). PyTorch: `torch.optim.SGD`.
///
/// ```
/// use attn::{dfdx::prelude::*, train::{Sgd, SgdConfig}};
///
/// let mut model: Tensor<Rank1<2>, f64, Cpu> = Cpu::default().tensor([1.0, -1.0]);
/// let mut optimizer = Sgd::new(SgdConfig { lr: 0.25, momentum: 0.5, ..Default::default() });
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// optimizer.update(&mut model, &mut gradients)?;
/// assert_eq!(model.array(), [0.5, -0.5]);
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
#[doc(alias = "SGD")]
pub type Sgd<E> = Optimizer<E, SgdConfig>;

impl Algorithm for SgdConfig {
    const NAME: &'static str = "Sgd";
    const LISTS: &'static [List] = &[List {
        always: false,
        ..List::of_elements("momentum")
    }];

    fn lr(&self, _: u64) -> Option<f64> {
        Some(self.lr)
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::check_not_negative("lr", self.lr)?;
        InvalidSetting::check_share("momentum", self.momentum)?;
        InvalidSetting::check_share("dampening", self.dampening)?;
        InvalidSetting::check_not_negative("weight_decay", self.weight_decay)
    }

    fn keeps(&self, _: &List, _: &ParameterInfo<'_>) -> bool {
        self.momentum > 0.0
    }

    fn begin(&self, _: u64, _: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
        Ok(())
    }

    fn is_elementwise(&self, _: &ParameterInfo<'_>) -> bool {
        true
    }

    fn update<E: Element>(&self, update: Update<'_, E>) {
        let settings = kernel::Sgd {
            lr: self.lr,
            momentum: self.momentum,
            dampening: self.dampening,
            nesterov: self.nesterov,
            weight_decay: decay_of(&update, self.weight_decay),
            step: update.count,
        };
        let [momentum] = Update::lists(update.lists);
        kernel::sgd_step(update.parameter, update.gradient, momentum, &settings);
    }
}
