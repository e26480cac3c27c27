//! Schedule-free AdamW.

use std::collections::BTreeMap;

use dfdx::nn::TensorCollection;

use super::algorithm::{Algorithm, InvalidSetting, List, ListStart, Update, decay_of};
use super::parameters::{for_each, for_each_mut};
use super::{Optimizer, ParameterInfo, UpdateError};
use crate::{
    Backend, Element,
    kernel::{Buffer, optim as kernel},
};

/// The settings of [`ScheduleFree`]. The defaults are those of its authors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleFreeConfig {
    /// The learning rate: 0 or more. It needs no schedule.
    pub lr: f64,
    /// How near the parameters are to the mean of all steps, and the decay rate of the mean of the squares of the gradients: in [0, 1),
    /// the first one greater than 0.
    pub betas: [f64; 2],
    /// A small number that keeps the divisor away from 0: 0 or more.
    pub epsilon: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter. 0 or more.
    /// Only the matrices of linear maps [decay by default](super::ParameterInfo::decays_by_default): no biases, gains, learned positions, and
    /// tables of embeddings. [`Optimizer::decaying`] changes that.
    pub weight_decay: f64,
    /// The number of steps in which the learning rate rises to `lr`.
    pub warm_up: u64,
    /// The power of the step count in the weight of a step in the mean: 0 or more.
    pub power: f64,
    /// The power of the learning rate in the weight of a step in the mean: 0 or more.
    pub lr_power: f64,
}

impl Default for ScheduleFreeConfig {
    fn default() -> Self {
        Self {
            lr: 2.5e-3,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            weight_decay: 0.0,
            warm_up: 0,
            power: 0.0,
            lr_power: 2.0,
        }
    }
}

/// AdamW without a schedule of learning rates. It keeps a sequence `z` of steps. Gradients are taken at parameters `y` between `z` and
/// the mean `x` of all of its steps. Step `t`, with the share `c` of a step in that mean, is
///
/// ```text
/// v = β₂ v + (1 - β₂) g²        d = g / (sqrt(v / (1 - β₂ᵗ)) + ε) + λ y
/// z = z - lr d        x = (1 - c) x + c z        y = (1 - β₁) z + β₁ x
/// ```
///
/// Defazio et al., "The road less scheduled" (2024). The package `schedulefree`: `AdamWScheduleFree`.
///
/// The model has the parameters `y` while it is trained. The mean `x` is what training results in: [`eval`](Optimizer::eval) puts it
/// into the model for an evaluation or a checkpoint, and [`train`](Optimizer::train) takes it out again before the next step, with the bits
/// of before. Who evaluates or saves without `eval` has the parameters `y`, in a [run](super::Fit) too:
///
/// ```text
/// .evaluate(|trainer| { trainer.eval()?; let loss = trainer.evaluate_all(batches())?; trainer.train()?; Ok(loss) })
/// ```
///
/// A checkpoint may be saved in both states, and training goes on from it with the same bits: after `train`, if it has the mean.
///
/// ```
/// use attn::{dfdx::prelude::*, train::{ScheduleFree, ScheduleFreeConfig}};
///
/// let mut model: Tensor<Rank1<2>, f64, Cpu> = Cpu::default().tensor([1.0, -1.0]);
/// let mut optimizer = ScheduleFree::new(ScheduleFreeConfig { lr: 0.1, ..Default::default() });
/// for _ in 0..50 {
///     let mut gradients = model.leaky_trace().square().sum().backward();
///     optimizer.update(&mut model, &mut gradients)?;
/// }
/// optimizer.eval(&mut model)?;
/// assert!(model.array().iter().all(|x| x.abs() < 0.2));
/// optimizer.train(&mut model)?;
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
#[doc(alias = "AdamWScheduleFree")]
pub type ScheduleFree<E> = Optimizer<E, ScheduleFreeConfig>;

/// The learning rate of the current step.
const RATE: &str = "lr";
/// The greatest learning rate so far.
const HIGHEST: &str = "lr_max";
/// The sum of the weights of all steps.
const WEIGHTS: &str = "weight_sum";
/// The share of the current step in the mean of all steps.
const SHARE: &str = "share";
/// 1 while the model has the mean of the steps.
const EVALUATES: &str = "eval";
/// The parameters `y`, while the model has the mean of the steps.
const TRAINED: List = List {
    always: false,
    ..List::of_elements("trained")
};

impl ScheduleFreeConfig {
    /// The learning rate of a step.
    fn rate(&self, step: u64) -> f64 {
        match step < self.warm_up {
            true => self.lr * (step as f64 / self.warm_up as f64),
            false => self.lr,
        }
    }
}

fn number(numbers: &BTreeMap<String, f64>, name: &str) -> f64 {
    numbers.get(name).copied().unwrap_or(0.0)
}

impl Algorithm for ScheduleFreeConfig {
    const NAME: &'static str = "ScheduleFree";
    const LISTS: &'static [List] = &[
        List::of_elements("square"),
        List {
            start: ListStart::Parameter,
            ..List::of_elements("steps")
        },
        TRAINED,
    ];

    fn lr(&self, step: u64) -> Option<f64> {
        Some(self.rate(step))
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::check_not_negative("lr", self.lr)?;
        InvalidSetting::check_share("betas[0]", self.betas[0])?;
        if self.betas[0] == 0.0 {
            return Err(InvalidSetting {
                name: "betas[0]",
                found: 0.0,
                expected: "greater than 0 and less than 1",
            });
        }
        InvalidSetting::check_share("betas[1]", self.betas[1])?;
        InvalidSetting::check_not_negative("epsilon", self.epsilon)?;
        InvalidSetting::check_not_negative("weight_decay", self.weight_decay)?;
        InvalidSetting::check_not_negative("power", self.power)?;
        InvalidSetting::check_not_negative("lr_power", self.lr_power)
    }

    fn keeps(&self, list: &List, _: &ParameterInfo<'_>) -> bool {
        *list != TRAINED
    }

    fn begin(&self, step: u64, numbers: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
        if number(numbers, EVALUATES) == 1.0 {
            return Err("the model has the mean of the steps: call `train` before the next step");
        }
        let rate = self.rate(step);
        let highest = number(numbers, HIGHEST).max(rate);
        let weight = (step as f64).powf(self.power) * highest.powf(self.lr_power);
        let weights = number(numbers, WEIGHTS) + weight;
        let share = if weights > 0.0 { weight / weights } else { 0.0 };
        let new = [
            (RATE, rate),
            (HIGHEST, highest),
            (WEIGHTS, weights),
            (SHARE, share),
        ];
        numbers.extend(new.map(|(name, number)| (name.into(), number)));
        Ok(())
    }

    fn is_elementwise(&self, _: &ParameterInfo<'_>) -> bool {
        true
    }

    fn update<E: Element>(&self, update: Update<'_, E>) {
        let settings = kernel::ScheduleFree {
            lr: self.rate(update.step),
            beta1: self.betas[0],
            beta2: self.betas[1],
            epsilon: self.epsilon,
            weight_decay: decay_of(&update, self.weight_decay),
            step: update.count,
            share: number(update.numbers, SHARE),
        };
        let [square, steps] = Update::lists(update.lists);
        kernel::schedule_free_step(update.parameter, update.gradient, square, steps, &settings);
    }
}

impl<E: Element> Optimizer<E, ScheduleFreeConfig> {
    /// Puts the mean of all steps into the model: the parameters to evaluate and to save. Nothing changes if it is there already.
    ///
    /// Until [`train`](Self::train), the state has the parameters of training, too, and a checkpoint saves them.
    ///
    /// # Errors
    /// [`UpdateError::Config`] if a setting is not allowed; [`UpdateError::StateMismatch`] if the state is that of another model. The model
    /// has not changed then.
    pub fn eval<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
    ) -> Result<(), UpdateError<D::Err>> {
        self.move_parameters(model, true)
    }

    /// Puts the parameters into the model at which the gradients of the next step are taken. Nothing changes if they are there already.
    ///
    /// They have the bits that they had before [`eval`](Self::eval), unless the parameters of the model have changed since. Then those are
    /// taken for the mean.
    ///
    /// # Errors
    /// As [`eval`](Self::eval).
    pub fn train<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
    ) -> Result<(), UpdateError<D::Err>> {
        self.move_parameters(model, false)
    }

    fn move_parameters<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
        evaluates: bool,
    ) -> Result<(), UpdateError<D::Err>> {
        if self.evaluates() == evaluates {
            return Ok(());
        }
        let choices = self.choices(model);
        for_each(model, |_, parameter| {
            let checked = self.with_settings(choices.of(parameter.id()), Algorithm::check);
            checked.map_err(UpdateError::of_setting)
        })?;
        self.check_state(&choices, None)?;
        for_each_mut(model, |path, parameter| {
            let beta = self.with_settings(choices.of(parameter.id()), |config| config.betas[0]);
            let trained = format!("{}.{}", path.name, TRAINED.name);
            let kept = self.state.lists.remove(&trained);
            let Some(steps) = self.state.lists.get(&format!("{}.steps", path.name)) else {
                return Ok(());
            };
            let mut numbers = Buffer::uninit(steps.len());
            parameter.read(&mut numbers);
            if evaluates {
                let before = numbers.to_vec();
                move_to_mean(&mut numbers, steps, beta);
                self.state.lists.insert(trained, before);
            } else {
                move_back(&mut numbers, steps, beta, kept);
            }
            parameter.write(&numbers);
            Ok::<_, UpdateError<D::Err>>(())
        })?;
        let evaluates = f64::from(u8::from(evaluates));
        self.state.numbers.insert(EVALUATES.into(), evaluates);
        Ok(())
    }

    /// Whether the model has the mean of the steps.
    pub fn evaluates(&self) -> bool {
        number(&self.state.numbers, EVALUATES) == 1.0
    }
}

/// From the parameters `y` to the mean `x` of the steps `z`.
fn move_to_mean<E: Element>(y: &mut [E], steps: &[E], beta: f64) {
    kernel::interpolate(y, steps, 1.0 - 1.0 / beta);
}

/// From the mean `x` of the steps `z` to the parameters `y`: those that were kept, if `x` is their mean. Computed again they are rounded.
fn move_back<E: Element>(x: &mut [E], steps: &[E], beta: f64, kept: Option<Vec<E>>) {
    if let Some(kept) = kept.filter(|kept| kept.len() == x.len()) {
        let mut mean = kept.clone();
        move_to_mean(&mut mean, steps, beta);
        if mean == *x {
            return x.copy_from_slice(&kept);
        }
    }
    kernel::interpolate(x, steps, 1.0 - beta);
}
