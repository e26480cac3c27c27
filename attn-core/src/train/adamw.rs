//! Adam with decoupled weight decay.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::{self, Debug};

use dfdx::{
    nn::TensorCollection,
    optim::{Optimizer, OptimizerUpdateError, UnusedTensors},
    tensor::{Gradients, UniqueId},
};

use super::{
    AdamWState, Moments, ParameterInfo, UpdateError,
    parameters::{check_gradients, for_each, for_each_mut, without_gradient},
};
use crate::{
    Backend, Element,
    fused::zeros,
    kernel::{Buffer, optim as kernel},
};

/// The numbers of [`AdamW`]; at first PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// The learning rate: 0 or more.
    pub lr: f64,
    /// How much of the mean of the gradients, and of their squares, stays in a step: from 0 up to but not 1.
    pub betas: [f64; 2],
    /// Keeps the divisor away from 0: 0 or more.
    pub epsilon: f64,
    /// The share of a parameter that a step takes away, per learning rate: 0 or more.
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

impl AdamWConfig {
    /// # Errors
    /// [`UpdateError::Config`] with the first number that is not what it may be.
    fn check<Dev>(&self) -> Result<(), UpdateError<Dev>> {
        let Self {
            lr,
            betas: [beta1, beta2],
            epsilon,
            weight_decay,
        } = *self;
        let not_negative = (0.0..=f64::MAX, "finite and not negative");
        let share = (0.0..=1.0_f64.next_down(), "in 0..1");
        let numbers = [
            ("lr", lr, &not_negative),
            ("betas[0]", beta1, &share),
            ("betas[1]", beta2, &share),
            ("epsilon", epsilon, &not_negative),
            ("weight_decay", weight_decay, &not_negative),
        ];
        match numbers
            .into_iter()
            .find(|(_, number, (range, _))| !range.contains(number))
        {
            Some((name, found, &(_, expected))) => Err(UpdateError::Config {
                name,
                found,
                expected,
            }),
            None => Ok(()),
        }
    }
}

/// Adam with decoupled weight decay: with the gradient `g` of a parameter `p`, step `t` is
///
/// ```text
/// m = β₁ m + (1 - β₁) g        v = β₂ v + (1 - β₂) g²
/// p = p - lr λ p - lr (m / (1 - β₁ᵗ)) / (sqrt(v / (1 - β₂ᵗ)) + ε)
/// ```
///
/// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2. PyTorch: `torch.optim.AdamW`. The
/// decay `λ` applies to matrices, but neither to biases, nor to the gains of norms, nor to the tables of embeddings and
/// learned positions: [`ParameterInfo::decays_by_default`] has the rule, and [`decaying`](Self::decaying) makes another choice.
///
/// A mean that would be a subnormal number is 0, so that parameters without gradients, as the embedding of a token that does not
/// come any more, do not slow the steps down.
///
/// The [`config`](Self::config) can be changed between steps, as for a learning rate with a schedule. The
/// [`state`](Self::state) is data, by the names of the parameters: training that starts again with it, and with the
/// parameters, goes on as if it had not stopped. It is also an [`Optimizer`] of dfdx, but as such copies all gradients in
/// each step.
///
/// ```
/// use attn_core::train::{AdamW, AdamWConfig};
/// use dfdx::prelude::*;
///
/// let mut model: Tensor<Rank1<2>, f64, Cpu> = Cpu::default().tensor([1.0, -1.0]);
/// let mut optimizer = AdamW::new(AdamWConfig { lr: 0.25, ..Default::default() });
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// optimizer.update(&mut model, &mut gradients)?;
/// // The first step is as long as the learning rate, whatever the gradient.
/// assert!(std::iter::zip(model.array(), [0.75, -0.75]).all(|(a, b)| (a - b).abs() < 1e-8));
/// assert_eq!(optimizer.state.step, 1);
/// # Ok::<(), attn_core::train::UpdateError<CpuError>>(())
/// ```
pub struct AdamW<E> {
    /// The numbers of the next step.
    pub config: AdamWConfig,
    /// What it remembers.
    pub state: AdamWState<E>,
    decays: Box<Decays>,
}

/// Which parameters decay.
type Decays = dyn Fn(&ParameterInfo<'_>) -> bool + Send + Sync;

impl<E> AdamW<E> {
    /// An optimizer that has done no step yet.
    pub fn new(config: AdamWConfig) -> Self {
        Self {
            config,
            state: AdamWState::default(),
            decays: Box::new(|parameter| parameter.decays_by_default()),
        }
    }

    /// The optimizer with another choice of the parameters that decay.
    ///
    /// A parameter that the model has several times, as a table that its clone in the output layer shares, does not decay
    /// if it does not under one of its names.
    ///
    /// ```
    /// use attn_core::train::AdamW;
    ///
    /// // As PyTorch does without groups of parameters.
    /// let optimizer = AdamW::<f32>::new(Default::default()).decaying(|_| true);
    /// ```
    pub fn decaying(
        mut self,
        decays: impl Fn(&ParameterInfo<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.decays = Box::new(decays);
        self
    }
}

impl<E: Element> AdamW<E> {
    /// One step: changes the parameters of `model` against their gradients.
    ///
    /// Parameters that share a gradient, because one is the clone of the other, take the same step, each under its name.
    ///
    /// # Errors
    /// [`UpdateError::Config`] if the [`config`](Self::config) has a number that it may not have;
    /// [`UpdateError::NoGradient`] with the names of parameters that have no gradient; [`UpdateError::StateMismatch`] if
    /// the state is that of another model; [`UpdateError::Device`] if dfdx fails. No parameter was changed then.
    pub fn update<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), UpdateError<D::Err>> {
        self.config.check()?;
        check_gradients(model, gradients)?;
        self.check_state(model, gradients)?;
        let spared = self.spared(model);
        self.state.step += 1;
        for_each_mut(model, |place, parameter| {
            let adamw = self.step(!spared.contains(&parameter.id()));
            let gradient = parameter.gradient(gradients)?;
            let mut numbers = Buffer::stale(gradient.len());
            parameter.read(&mut numbers);
            let moments = self.state.moments.entry(place.name);
            let Moments { mean, square } = moments.or_insert_with(|| Moments {
                mean: zeros(gradient.len()),
                square: zeros(gradient.len()),
            });
            kernel::adamw_step(&mut numbers, gradient, mean, square, &adamw);
            parameter.write(&numbers);
            Ok(())
        })
    }

    /// The parameters that do not decay.
    fn spared<M: TensorCollection<E, D>, D: Backend<E>>(&self, model: &M) -> BTreeSet<UniqueId> {
        let mut spared = BTreeSet::new();
        let Ok(()) = for_each(model, |place, parameter| {
            let info = ParameterInfo {
                name: &place.name,
                dims: &parameter.dims(),
                module: place.module,
            };
            if !(self.decays)(&info) {
                spared.insert(parameter.id());
            }
            Ok::<_, Infallible>(())
        });
        spared
    }

    /// The numbers of this step for one parameter.
    fn step(&self, decays: bool) -> kernel::AdamW {
        let AdamWConfig {
            lr,
            betas: [beta1, beta2],
            epsilon,
            weight_decay,
        } = self.config;
        kernel::AdamW {
            lr,
            beta1,
            beta2,
            epsilon,
            weight_decay: if decays { weight_decay } else { 0.0 },
            step: self.state.step,
        }
    }

    fn check_state<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), UpdateError<D::Err>> {
        for_each(model, |place, parameter| {
            let Some(Moments { mean, square }) = self.state.moments.get(&place.name) else {
                return Ok(());
            };
            let expected = parameter.gradient(gradients)?.len();
            match [mean.len(), square.len()]
                .iter()
                .find(|&&len| len != expected)
            {
                Some(&found) => Err(UpdateError::StateMismatch {
                    name: place.name,
                    expected,
                    found,
                }),
                None => Ok(()),
            }
        })
    }
}

/// As [`update`](AdamW::update), on a copy of the gradients.
///
/// # Panics
/// On [`UpdateError::StateMismatch`] and [`UpdateError::Config`], which dfdx's error cannot say.
impl<M: TensorCollection<E, D>, E: Element, D: Backend<E>> Optimizer<M, D, E> for AdamW<E> {
    fn update(
        &mut self,
        model: &mut M,
        gradients: &Gradients<E, D>,
    ) -> Result<(), OptimizerUpdateError<D::Err>> {
        let mut gradients = gradients.clone();
        let missing =
            without_gradient(model, &mut gradients).map_err(OptimizerUpdateError::DeviceError)?;
        let ids: Vec<_> = missing.into_iter().map(|(_, id)| id).collect();
        if !ids.is_empty() {
            return Err(OptimizerUpdateError::UnusedParams(UnusedTensors { ids }));
        }
        match Self::update(self, model, &mut gradients) {
            Ok(()) => Ok(()),
            Err(UpdateError::Device(error)) => Err(OptimizerUpdateError::DeviceError(error)),
            Err(mistake) => panic!("{mistake}"),
        }
    }
}

impl<E: Debug> Debug for AdamW<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdamW")
            .field("config", &self.config)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
