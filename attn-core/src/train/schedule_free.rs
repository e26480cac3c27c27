//! Schedule-free AdamW.

use std::collections::BTreeMap;

use dfdx::nn::TensorCollection;

use super::algorithm::{Algorithm, InvalidSetting, List, ListStart, Update, decay_of};
use super::parameters::for_each_mut;
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
/// into the model for an evaluation or a checkpoint, and [`train`](Optimizer::train) takes it out again before the next step.
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
    ];

    fn lr(&self) -> Option<f64> {
        Some(self.lr)
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

    fn keeps(&self, _: &List, _: &ParameterInfo<'_>) -> bool {
        true
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
    /// # Errors
    /// [`UpdateError::StateMismatch`] if the state is that of another model. The model has not changed then.
    pub fn eval<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
    ) -> Result<(), UpdateError<D::Err>> {
        self.move_parameters(model, 1.0, |config| 1.0 - 1.0 / config.betas[0])
    }

    /// Puts the parameters into the model at which the gradients of the next step are taken. Nothing changes if they are there already.
    ///
    /// # Errors
    /// As [`eval`](Self::eval).
    pub fn train<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
    ) -> Result<(), UpdateError<D::Err>> {
        self.move_parameters(model, 0.0, |config| 1.0 - config.betas[0])
    }

    fn move_parameters<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
        evaluates: f64,
        weight: impl Fn(&ScheduleFreeConfig) -> f64,
    ) -> Result<(), UpdateError<D::Err>> {
        if number(&self.state.numbers, EVALUATES) == evaluates {
            return Ok(());
        }
        let choices = self.choices(model);
        self.check_state(model, &choices)?;
        for_each_mut(model, |path, parameter| {
            if let Some(steps) = self.state.lists.get(&format!("{}.steps", path.name)) {
                let mut numbers = Buffer::uninit(steps.len());
                parameter.read(&mut numbers);
                let choice = choices.of(parameter.id());
                kernel::interpolate(&mut numbers, steps, self.with_settings(choice, &weight));
                parameter.write(&numbers);
            }
            Ok::<_, UpdateError<D::Err>>(())
        })?;
        self.state.numbers.insert(EVALUATES.into(), evaluates);
        Ok(())
    }

    /// Whether the model has the mean of the steps.
    pub fn evaluates(&self) -> bool {
        number(&self.state.numbers, EVALUATES) == 1.0
    }
}
