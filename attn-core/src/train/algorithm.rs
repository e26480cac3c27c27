//! The algorithms of optimizers.

use std::{collections::BTreeMap, fmt::Debug};

use super::ParameterInfo;
use crate::Element;

/// An algorithm that updates parameters by their gradients, with its settings. An [`Optimizer`](super::Optimizer) applies it to a model.
///
/// Its `Debug` shows all settings: [ranks](super::Trainer::across) compare them by it. It shows no addresses, such as that of a function, which
/// differ between processes. A function that chooses parameters is compared by what [`is_elementwise`](Self::is_elementwise) and
/// [`keeps`](Self::keeps) return for each.
///
/// A parameter with several names, such as a table that the output layer shares, has one [`ParameterInfo`] here, with the first of its names
/// and modules by which it is [elementwise](Self::is_elementwise), or else with the first one.
///
/// ```
/// use attn::{Element, dfdx::prelude::*, train::{Algorithm, InvalidSetting, List, Optimizer, ParameterInfo, Update}};
/// use std::collections::BTreeMap;
///
/// /// Gradient descent by the sign of the gradient. Bernstein et al., "signSGD" (2018).
/// #[derive(Debug)]
/// struct SignSgd {
///     lr: f64,
/// }
///
/// impl Algorithm for SignSgd {
///     const NAME: &'static str = "SignSgd";
///     const LISTS: &'static [List] = &[];
///
///     fn check(&self) -> Result<(), InvalidSetting> {
///         InvalidSetting::check_not_negative("lr", self.lr)
///     }
///
///     fn keeps(&self, _: &List, _: &ParameterInfo<'_>) -> bool {
///         false
///     }
///
///     fn begin(&self, _: u64, _: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
///         Ok(())
///     }
///
///     fn is_elementwise(&self, _: &ParameterInfo<'_>) -> bool {
///         true
///     }
///
///     fn update<E: Element>(&self, update: Update<'_, E>) {
///         for (p, g) in update.parameter.iter_mut().zip(update.gradient) {
///             *p -= E::of(self.lr) * g.signum();
///         }
///     }
/// }
///
/// let mut model: Tensor<Rank1<2>, f32, Cpu> = Cpu::default().tensor([1.0, -1.0]);
/// let mut optimizer = Optimizer::new(SignSgd { lr: 0.25 });
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// optimizer.update(&mut model, &mut gradients)?;
/// assert_eq!(model.array(), [0.75, -0.75]);
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
pub trait Algorithm: Debug + Sync {
    /// Its name, for errors. A checkpoint has it, and is not loaded by an algorithm of another name.
    const NAME: &'static str;

    /// The lists of numbers that it keeps for parameters.
    const LISTS: &'static [List];

    /// Checks the settings.
    ///
    /// # Errors
    /// The first one that is not allowed.
    fn check(&self) -> Result<(), InvalidSetting>;

    /// Whether it keeps this list, which is not [always](List::always) kept, for a parameter.
    fn keeps(&self, list: &List, parameter: &ParameterInfo<'_>) -> bool;

    /// Changes the numbers that it keeps for all parameters. It is called before the parameters are updated in this step, and again with the
    /// settings and the numbers of each [group](super::Optimizer::group). Steps count from 1.
    ///
    /// # Errors
    /// Why there can be no step now. Nothing has changed then.
    fn begin(&self, step: u64, numbers: &mut BTreeMap<String, f64>) -> Result<(), &'static str>;

    /// Whether the update of each number of a parameter depends on nothing but that number, its gradient and its numbers in the lists. Then
    /// [`update`](Self::update) may be called for a part of the parameter, and the parts of a large one are updated by several threads.
    fn is_elementwise(&self, parameter: &ParameterInfo<'_>) -> bool {
        let _ = parameter;
        false
    }

    /// Updates a parameter, or a part of one if that [may be](Self::is_elementwise). Several are updated at a time, by several threads.
    fn update<E: Element>(&self, update: Update<'_, E>);

    /// The learning rate of a step, for records of training. `None` if the algorithm has none.
    fn lr(&self, step: u64) -> Option<f64> {
        let _ = step;
        None
    }
}

/// An [`Algorithm`] with one learning rate, which a [`Schedule`](super::Schedule) can set.
pub trait LearningRate: Algorithm {
    /// Sets the learning rate of the next step. Another rate that the algorithm has stays in the proportion that it has to the first one in
    /// the `initial` settings.
    fn set_lr(&mut self, lr: f64, initial: &Self);
}

macro_rules! learning_rates {
    ($($Config:ident),*) => {$(
        impl LearningRate for super::$Config {
            fn set_lr(&mut self, lr: f64, _: &Self) {
                self.lr = lr;
            }
        }
    )*};
}

learning_rates!(
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    ScheduleFreeConfig,
    SgdConfig
);

/// A list of numbers that an [`Algorithm`] keeps for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// Its name. It is saved as `<parameter>.<name>`. A trainer with a list named `ema` does not compile: its [averages](super::Trainer::ema)
    /// have that name.
    pub name: &'static str,
    /// How many numbers it has.
    pub size: ListSize,
    /// Whether there is one for every parameter, whatever the settings.
    pub always: bool,
    /// Its numbers before the first step.
    pub start: ListStart,
}

impl List {
    /// A list with a number for each of a parameter, at first 0.
    pub const fn of_elements(name: &'static str) -> Self {
        Self {
            name,
            size: ListSize::Elements,
            always: true,
            start: ListStart::Zeros,
        }
    }
}

/// The length of a [`List`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSize {
    /// That of the parameter.
    Elements,
    /// The number of rows of its matrices, which its last two axes are.
    Rows,
    /// The number of columns of its matrices.
    Cols,
}

impl ListSize {
    /// For a parameter of these sizes.
    pub fn of(self, dims: &[usize]) -> usize {
        let product = |dims: &[usize]| dims.iter().product::<usize>();
        match (self, dims) {
            (ListSize::Elements, _) => product(dims),
            (ListSize::Rows, [rows @ .., _]) => product(rows),
            (ListSize::Cols, [lead @ .., _, cols]) => product(lead) * cols,
            (ListSize::Rows, []) => 1,
            (ListSize::Cols, [] | [_]) => product(dims),
        }
    }
}

/// The numbers of a [`List`] before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListStart {
    /// Zeros.
    Zeros,
    /// Those of the parameter.
    Parameter,
}

/// One parameter in a step of an [`Algorithm`], or a part of one if the algorithm is [elementwise](Algorithm::is_elementwise).
#[derive(Debug)]
pub struct Update<'a, E> {
    /// The number of the step, from 1.
    pub step: u64,
    /// How many steps have updated this parameter, with this one. Steps in which it was frozen or had no gradient do not count, nor do
    /// those before its lists were kept, with other settings. So the
    /// correction of a mean that began with 0 is by this number. PyTorch: `state["step"]`.
    pub count: u64,
    /// The name, the sizes and the module of the whole parameter.
    pub info: ParameterInfo<'a>,
    /// Whether weight decay applies to it.
    pub decays: bool,
    /// The numbers that are kept for all parameters, or for those of its [group](super::Optimizer::group).
    pub numbers: &'a BTreeMap<String, f64>,
    /// How many elements of the parameter are before these: 0, unless they are a part of it.
    pub start: usize,
    /// Its elements, row-major.
    pub parameter: &'a mut [E],
    /// Its gradient.
    pub gradient: &'a [E],
    /// Its lists, in the order of [`Algorithm::LISTS`]. One that is not kept is empty.
    pub lists: &'a mut [&'a mut [E]],
}

impl<'a, E> Update<'a, E> {
    /// The first lists, of which there are `N`.
    ///
    /// # Panics
    /// If the algorithm has fewer lists.
    #[track_caller]
    pub(super) fn lists<const N: usize>(lists: &'a mut [&'a mut [E]]) -> [&'a mut [E]; N] {
        let mut lists = lists.iter_mut();
        std::array::from_fn(|_| match lists.next() {
            Some(list) => &mut **list,
            None => panic!("an update has as many lists as its algorithm"),
        })
    }
}

/// A setting of an [`Algorithm`] that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("`{name}` is {found}, but must be {expected}")]
pub struct InvalidSetting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub found: f64,
    /// The values that are allowed.
    pub expected: &'static str,
}

impl InvalidSetting {
    /// # Errors
    /// If the number is negative, infinite or NaN.
    pub fn check_not_negative(name: &'static str, found: f64) -> Result<(), Self> {
        let expected = "finite and not negative";
        match (0.0..=f64::MAX).contains(&found) {
            true => Ok(()),
            false => Err(Self {
                name,
                found,
                expected,
            }),
        }
    }

    /// # Errors
    /// If the number is not in `[0, 1)`.
    pub fn check_share(name: &'static str, found: f64) -> Result<(), Self> {
        let expected = "in 0..1";
        match (0.0..1.0).contains(&found) {
            true => Ok(()),
            false => Err(Self {
                name,
                found,
                expected,
            }),
        }
    }
}

/// The weight decay of a parameter.
pub(super) fn decay_of<E>(update: &Update<'_, E>, weight_decay: f64) -> f64 {
    if update.decays { weight_decay } else { 0.0 }
}
