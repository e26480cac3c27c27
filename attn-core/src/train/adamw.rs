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

/// The hyperparameters of [`AdamW`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// The learning rate: 0 or more.
    pub lr: f64,
    /// The decay rates of the means of the gradients and of their squares: in [0, 1).
    pub betas: [f64; 2],
    /// A small number that keeps the divisor away from 0: 0 or more.
    pub epsilon: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter. 0 or more.
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
    /// [`UpdateError::Config`] with the first number that is not allowed.
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

/// Adam with decoupled weight decay. For the gradient `g` of a parameter `p`, step `t` is
///
/// ```text
/// m = β₁ m + (1 - β₁) g        v = β₂ v + (1 - β₂) g²
/// p = p - lr λ p - lr (m / (1 - β₁ᵗ)) / (sqrt(v / (1 - β₂ᵗ)) + ε)
/// ```
///
/// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2. PyTorch: `torch.optim.AdamW`. The decay
/// `λ` applies to matrices. It does not apply to biases, the gains of norms, and the tables of embeddings and learned positions.
/// [`ParameterInfo::decays_by_default`] has the rule, and [`decaying`](Self::decaying) changes it.
///
/// A mean that would be subnormal is set to 0, so that parameters without gradients, such as the embeddings of tokens that no
/// longer occur, do not slow the steps down.
///
/// The [`config`](Self::config) can be changed between steps, for example by a learning rate schedule. The [`state`](Self::state)
/// is data, with the names of the parameters. Training that resumes with it, and with the parameters, continues as if it had not
/// stopped. `AdamW` is also an [`Optimizer`] of dfdx, but as such it copies all gradients in each step.
///
/// The first step binds an optimizer to the parameters of its model: its step count and moments belong to them. Another model,
/// also one with the same names, is an error until the state is reset. Clones of a model have the same parameters.
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
#[doc(alias = "configure_optimizers")]
pub struct AdamW<E> {
    /// The hyperparameters of the next step.
    pub config: AdamWConfig,
    /// Its state.
    pub state: AdamWState<E>,
    decays: Box<Decays>,
    last_step: Option<LastStep>,
}

/// The model of the last step.
struct LastStep {
    /// The step count after it. Another count means that the user has set the state.
    step: u64,
    parameters: Vec<UniqueId>,
}

/// Decides which parameters decay.
type Decays = dyn Fn(&ParameterInfo<'_>) -> bool + Send + Sync;

impl<E> AdamW<E> {
    /// An optimizer before its first step.
    pub fn new(config: AdamWConfig) -> Self {
        Self {
            config,
            state: AdamWState::default(),
            decays: Box::new(|parameter| parameter.decays_by_default()),
            last_step: None,
        }
    }

    /// Changes which parameters decay.
    ///
    /// A parameter may have several names in a model, such as a table that the output layer shares. It does not decay if it does
    /// not decay under one of them.
    ///
    /// ```
    /// use attn::train::AdamW;
    ///
    /// // As PyTorch does without groups of parameters.
    /// let optimizer = AdamW::<f32>::new(Default::default()).decaying(|_| true);
    /// ```
    #[doc(alias = "param_groups")]
    pub fn decaying(
        mut self,
        decays: impl Fn(&ParameterInfo<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.decays = Box::new(decays);
        self
    }
}

impl<E: Element> AdamW<E> {
    /// One step: updates the parameters of `model` by their gradients.
    ///
    /// Parameters that share a gradient, because one is a clone of the other, take the same step, each under its name.
    ///
    /// # Errors
    /// [`UpdateError::Config`] if the [`config`](Self::config) has an invalid number; [`UpdateError::OtherModel`] if earlier steps
    /// updated other parameters; [`UpdateError::NoGradient`] with the names of parameters that have no gradient;
    /// [`UpdateError::StateMismatch`] if the state is that of another model; [`UpdateError::Device`] if dfdx fails. No parameter
    /// has changed then.
    #[doc(alias = "step")]
    pub fn update<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), UpdateError<D::Err>> {
        self.config.check()?;
        let parameters = self.check_model(model)?;
        check_gradients(model, gradients)?;
        self.check_state(model, gradients)?;
        let without_decay = self.without_decay(model);
        self.state.step = self.state.step.saturating_add(1);
        self.last_step = Some(LastStep {
            step: self.state.step,
            parameters,
        });
        for_each_mut(model, |path, parameter| {
            let adamw = self.step(!without_decay.contains(&parameter.id()));
            let gradient = parameter.gradient(gradients)?;
            let mut numbers = Buffer::uninit(gradient.len());
            parameter.read(&mut numbers);
            let moments = self.state.moments.entry(path.name);
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
    fn without_decay<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> BTreeSet<UniqueId> {
        let mut without_decay = BTreeSet::new();
        let Ok(()) = for_each(model, |path, parameter| {
            let info = ParameterInfo {
                name: &path.name,
                dims: &parameter.dims(),
                module: path.module,
            };
            if !(self.decays)(&info) {
                without_decay.insert(parameter.id());
            }
            Ok::<_, Infallible>(())
        });
        without_decay
    }

    /// The arguments of this step for one parameter.
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

    /// Checks that the model has the parameters of the earlier steps, and returns them.
    fn check_model<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> Result<Vec<UniqueId>, UpdateError<D::Err>> {
        let mut parameters = Vec::new();
        let Ok(()) = for_each(model, |_, parameter| {
            parameters.push(parameter.id());
            Ok::<_, Infallible>(())
        });
        let last_step = self.last_step.as_ref();
        match last_step.filter(|last_step| last_step.step == self.state.step) {
            Some(last_step) if last_step.parameters != parameters => Err(UpdateError::OtherModel {
                name: self.first_unknown(model, &last_step.parameters),
            }),
            _ => Ok(parameters),
        }
    }

    /// The first parameter of the model that differs from that of the optimizer at its position, or one that only the optimizer
    /// has.
    fn first_unknown<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
        last_step: &[UniqueId],
    ) -> String {
        let mut names = BTreeSet::new();
        let mut last_step = last_step.iter();
        let strange = for_each(model, |path, parameter| {
            if last_step.next() != Some(&parameter.id()) {
                return Err(path.name);
            }
            names.insert(path.name);
            Ok(())
        });
        let mut known = self.state.moments.keys();
        let missing = || known.find(|name| !names.contains(*name)).cloned();
        strange.err().or_else(missing).unwrap_or_default()
    }

    fn check_state<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), UpdateError<D::Err>> {
        for_each(model, |path, parameter| {
            let Some(Moments { mean, square }) = self.state.moments.get(&path.name) else {
                return Ok(());
            };
            let expected = parameter.gradient(gradients)?.len();
            match [mean.len(), square.len()]
                .iter()
                .find(|&&len| len != expected)
            {
                Some(&found) => Err(UpdateError::StateMismatch {
                    name: path.name,
                    expected,
                    found,
                }),
                None => Ok(()),
            }
        })
    }
}

/// [`update`](AdamW::update) on a copy of the gradients.
///
/// # Panics
/// On [`UpdateError::OtherModel`], [`UpdateError::StateMismatch`] and [`UpdateError::Config`], which dfdx's error type cannot
/// express.
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

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::{AdamW, AdamWConfig, AdamWState};
    use crate::train::{UpdateError, scale_grads};

    type Model = Tensor<Rank1<1>, f64, Cpu>;

    fn step(optimizer: &mut AdamW<f64>, model: &mut Model) -> Result<f64, String> {
        let before = model.array()[0];
        let mut gradients = model.leaky_trace().square().sum().backward();
        match optimizer.update(model, &mut gradients) {
            Ok(()) => Ok(model.array()[0]),
            Err(error) => {
                assert!(matches!(error, UpdateError::OtherModel { .. }), "{error}");
                assert_eq!(model.array()[0], before, "nothing was changed");
                Err(error.to_string())
            }
        }
    }

    fn models() -> [Model; 2] {
        let dev = Cpu::default();
        [dev.tensor([1.0]), dev.tensor([2.0])]
    }

    #[test]
    fn a_second_model_is_refused_and_the_first_one_can_continue() {
        let [mut first, mut second] = models();
        let [mut alone, _] = models();
        let mut optimizer = AdamW::new(Default::default());
        let mut its_own = AdamW::new(Default::default());
        for _ in 0..3 {
            let found = step(&mut optimizer, &mut first);
            assert_eq!(found, step(&mut its_own, &mut alone));
            let refused = step(&mut optimizer, &mut second);
            assert_eq!(
                refused.err().as_deref(),
                Some(
                    "this optimizer is of another model, which has not the same parameter: a second model takes an `AdamW` of its own"
                )
            );
        }
    }

    #[test]
    fn models_with_more_or_fewer_parameters_are_refused() {
        type Pair = (Model, Model);
        let mut pair: Pair = models().into();
        let mut optimizer = AdamW::<f64>::new(AdamWConfig::default());
        let mut gradients = pair.alloc_grads();
        optimizer
            .update(&mut pair, &mut gradients)
            .expect("the first step");
        let mut update = |model: &mut (Model,)| {
            let mut gradients = model.alloc_grads();
            optimizer
                .update(model, &mut gradients)
                .err()
                .map(|error| error.to_string())
        };
        // dfdx appends a dot to the index in a tuple, also at the end of a name.
        let refused = |name: &str| {
            Some(format!(
                "this optimizer is of another model, which has not the same `{name}`: a second model takes an `AdamW` of its own"
            ))
        };
        assert_eq!(update(&mut (pair.0.clone(),)), refused("1."));
        assert_eq!(update(&mut (pair.1.clone(),)), refused("0."));
    }

    #[test]
    fn clones_and_replaced_states_are_accepted() {
        let [mut first, mut second] = models();
        let mut optimizer = AdamW::new(Default::default());
        step(&mut optimizer, &mut first).expect("the first step");
        step(&mut optimizer, &mut first.clone()).expect("a clone has its parameters");
        optimizer.state = AdamWState::default();
        let found = step(&mut optimizer, &mut second);
        let [_, mut alone] = models();
        assert_eq!(found, step(&mut AdamW::new(Default::default()), &mut alone));
    }

    #[test]
    fn factors_that_are_not_finite_are_refused() {
        let [model, _] = models();
        for factor in [f64::NAN, 1.0 / 0.0] {
            let mut gradients = model.alloc_grads();
            let refused = scale_grads(&model, &mut gradients, factor).err();
            let message = refused.map(|error| error.to_string());
            assert_eq!(
                message,
                Some(format!("`factor` is {factor}, not a finite number"))
            );
            assert_eq!(gradients.get(&model).array(), [0.0]);
        }
    }
}
