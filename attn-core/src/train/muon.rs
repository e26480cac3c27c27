//! Muon.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
};

use super::adamw::AdamWConfig;
use super::algorithm::{Algorithm, InvalidSetting, LearningRate, List, Update, decay_of};
use super::{Optimizer, ParameterInfo};
use crate::{Element, kernel::optim as kernel};

/// The settings of [`Muon`]. The defaults are PyTorch's.
#[derive(Clone, Copy)]
pub struct MuonConfig {
    /// The learning rate: 0 or more.
    pub lr: f64,
    /// How much of the momentum of the step before stays: in [0, 1).
    pub momentum: f64,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter. 0 or more.
    /// Only the matrices of linear maps [decay by default](super::ParameterInfo::decays_by_default): no biases, gains, learned positions, and
    /// tables of embeddings. [`Optimizer::decaying`] changes that.
    pub weight_decay: f64,
    /// The length of a step of a matrix.
    pub scale: MuonScale,
    /// The coefficients of the Newton-Schulz iteration `x = a x + b x³ + c x⁵` of singular values: finite.
    pub coefficients: [f64; 3],
    /// The number of iterations: 1 or more.
    pub iterations: usize,
    /// A momentum with a norm below this is not made longer: more than 0.
    pub epsilon: f64,
    /// Whether a parameter is a hidden matrix. The others take steps of AdamW. A parameter that has not two axes is never one,
    /// and one with several names, such as a table that the output layer shares, is one if it is by each of them.
    pub hidden: fn(&ParameterInfo<'_>) -> bool,
    /// The settings of AdamW for the other parameters. A schedule of a [`Trainer`](super::Trainer) sets the rate of both: that of AdamW stays in
    /// proportion to [`lr`](Self::lr). A group of such parameters changes `adamw.lr`, or both rates by [`scale_lr`](Self::scale_lr).
    pub adamw: AdamWConfig,
}

impl MuonConfig {
    /// Multiplies both learning rates, for a group of any parameters: those that are no hidden matrices have the rate of
    /// [`adamw`](Self::adamw), and take no notice of [`lr`](Self::lr).
    ///
    /// ```
    /// use attn::train::{Muon, MuonConfig};
    ///
    /// let optimizer = Muon::<f32>::new(MuonConfig::default())
    ///     .group("embedding.*", |config: &mut MuonConfig| config.scale_lr(0.1))
    ///     .group("lm_head.*", |config: &mut MuonConfig| config.adamw.lr = 1e-4);
    /// # let _ = optimizer;
    /// ```
    pub fn scale_lr(&mut self, factor: f64) {
        self.lr *= factor;
        self.adamw.lr *= factor;
    }
}

/// Without the function `hidden`, which has no text: its address is another one in each process.
impl Debug for MuonConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lr,
            momentum,
            nesterov,
            weight_decay,
            scale,
            coefficients,
            iterations,
            epsilon,
            hidden: _,
            adamw,
        } = self;
        f.debug_struct("MuonConfig")
            .field("lr", lr)
            .field("momentum", momentum)
            .field("nesterov", nesterov)
            .field("weight_decay", weight_decay)
            .field("scale", scale)
            .field("coefficients", coefficients)
            .field("iterations", iterations)
            .field("epsilon", epsilon)
            .field("adamw", adamw)
            .finish_non_exhaustive()
    }
}

/// The length of a step of [`Muon`] along every singular vector of a weight with so many outputs and inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MuonScale {
    /// `lr sqrt(max(1, outputs / inputs))`: Jordan et al. 2024.
    Original,
    /// `0.2 lr sqrt(max(outputs, inputs))`: the root mean square of the steps of AdamW, for its learning rates. Liu et al., "Muon is
    /// scalable for LLM training" (2025).
    MatchRmsAdamW,
    /// `lr sqrt(outputs / inputs)`: Bernstein, "Deriving Muon" (2025).
    SpectralUnclamped,
}

impl Default for MuonConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.1,
            scale: MuonScale::Original,
            coefficients: [3.4445, -4.775, 2.0315],
            iterations: 5,
            epsilon: 1e-7,
            hidden: |parameter| parameter.decays_by_default(),
            adamw: AdamWConfig::default(),
        }
    }
}

/// Muon: the momentum of a matrix with all of its singular values made about 1. For the gradient `G` of a weight `W`, a step is
///
/// ```text
/// M = μ M + (1 - μ) G        X = M        with nesterov X = μ M + (1 - μ) G
/// X = X / |X|        then, `iterations` times:        X = a X + (b X Xᵀ + c (X Xᵀ)²) X
/// W = W - lr λ W - length X
/// ```
///
/// Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024). PyTorch: `torch.optim.Muon`, which computes the
/// iteration in bf16.
///
/// It is for the matrices of hidden layers. Biases, norms and tables take steps of AdamW; so should the output layer:
///
/// ```
/// use attn::train::{Muon, MuonConfig, ParameterInfo};
///
/// fn is_hidden(parameter: &ParameterInfo<'_>) -> bool {
///     parameter.decays_by_default() && !parameter.name.starts_with("lm_head")
/// }
/// let optimizer = Muon::<f32>::new(MuonConfig { lr: 0.02, hidden: is_hidden, ..Default::default() });
/// # let _ = optimizer;
/// ```
pub type Muon<E> = Optimizer<E, MuonConfig>;

const fn optional(name: &'static str) -> List {
    List {
        always: false,
        ..List::of_elements(name)
    }
}

const MOMENTUM: List = optional("momentum");

/// A setting, and whether it has one of the values that are allowed.
fn check(
    name: &'static str,
    found: f64,
    is_allowed: bool,
    expected: &'static str,
) -> Result<(), InvalidSetting> {
    match is_allowed {
        true => Ok(()),
        false => Err(InvalidSetting {
            name,
            found,
            expected,
        }),
    }
}

impl MuonConfig {
    fn is_hidden(&self, parameter: &ParameterInfo<'_>) -> bool {
        parameter.dims.len() == 2 && (self.hidden)(parameter)
    }

    /// The length of a step of a matrix.
    fn length(&self, outputs: usize, inputs: usize) -> f64 {
        let [outputs, inputs] = [outputs, inputs].map(|size| size as f64);
        let factor = match self.scale {
            MuonScale::Original => (outputs / inputs).max(1.0).sqrt(),
            MuonScale::MatchRmsAdamW => 0.2 * outputs.max(inputs).sqrt(),
            MuonScale::SpectralUnclamped => (outputs / inputs).sqrt(),
        };
        self.lr * factor
    }
}

impl LearningRate for MuonConfig {
    fn set_lr(&mut self, lr: f64, initial: &Self) {
        self.lr = lr;
        if initial.lr > 0.0 {
            self.adamw.lr = initial.adamw.lr * (lr / initial.lr);
        }
    }
}

impl Algorithm for MuonConfig {
    const NAME: &'static str = "Muon";
    const LISTS: &'static [List] = &[MOMENTUM, optional("mean"), optional("square")];

    fn lr(&self, _: u64) -> Option<f64> {
        Some(self.lr)
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::check_not_negative("lr", self.lr)?;
        InvalidSetting::check_share("momentum", self.momentum)?;
        InvalidSetting::check_not_negative("weight_decay", self.weight_decay)?;
        let names = ["coefficients[0]", "coefficients[1]", "coefficients[2]"];
        for (name, found) in names.into_iter().zip(self.coefficients) {
            check(name, found, found.is_finite(), "finite")?;
        }
        let iterations = self.iterations as f64;
        check("iterations", iterations, self.iterations > 0, "1 or more")?;
        let is_normal = (f64::MIN_POSITIVE..=f64::MAX).contains(&self.epsilon);
        check("epsilon", self.epsilon, is_normal, "finite and more than 0")?;
        self.adamw.check_as([
            "adamw.lr",
            "adamw.betas[0]",
            "adamw.betas[1]",
            "adamw.epsilon",
            "adamw.weight_decay",
        ])
    }

    fn keeps(&self, list: &List, parameter: &ParameterInfo<'_>) -> bool {
        self.is_hidden(parameter) == (*list == MOMENTUM)
    }

    fn begin(&self, _: u64, _: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
        Ok(())
    }

    fn is_elementwise(&self, parameter: &ParameterInfo<'_>) -> bool {
        !self.is_hidden(parameter)
    }

    fn update<E: Element>(&self, update: Update<'_, E>) {
        let &[outputs, inputs] = update.info.dims else {
            return self.update_by_adamw(update);
        };
        if !self.is_hidden(&update.info) {
            return self.update_by_adamw(update);
        }
        let settings = kernel::Muon {
            lr: self.lr,
            length: self.length(outputs, inputs),
            momentum: self.momentum,
            nesterov: self.nesterov,
            weight_decay: decay_of(&update, self.weight_decay),
            coefficients: self.coefficients,
            iterations: self.iterations,
            epsilon: self.epsilon,
        };
        let [momentum] = Update::lists(update.lists);
        kernel::muon_step(
            update.parameter,
            update.gradient,
            momentum,
            inputs,
            &settings,
        );
    }
}

impl MuonConfig {
    fn update_by_adamw<E: Element>(&self, update: Update<'_, E>) {
        let Update { lists, .. } = update;
        let lists = lists.get_mut(1..).unwrap_or_default();
        self.adamw.update(Update { lists, ..update });
    }
}
