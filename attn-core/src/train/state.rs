//! The state of an optimizer, and its conversion for files.

use std::collections::BTreeMap;

/// The state of [`AdamW`](super::AdamW) between steps.
///
/// It is plain data. [`lists`](Self::lists) are for formats that save lists of numbers by name, such as those for tensors.
/// [`from_lists`](Self::from_lists) is the inverse.
///
/// ```
/// use attn::train::{AdamWState, Moments};
///
/// let mut state = AdamWState { step: 7, ..Default::default() };
/// state.moments.insert("0.bias".into(), Moments { mean: vec![0.5], square: vec![0.25] });
///
/// let lists: Vec<(String, &[f32])> = state.lists().collect();
/// assert_eq!(lists, [("0.bias.mean".into(), &[0.5][..]), ("0.bias.square".into(), &[0.25][..])]);
///
/// let read = lists.into_iter().map(|(name, list)| (name, list.to_vec()));
/// assert_eq!(AdamWState::from_lists(7, read)?, state);
/// # Ok::<(), attn::train::StateError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AdamWState<E> {
    /// The number of steps so far.
    pub step: u64,
    /// The moments by the name of the parameter, under which dfdx saves it.
    pub moments: BTreeMap<String, Moments<E>>,
}

/// Running means of one parameter. They have its number of elements, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments<E> {
    /// The mean of its gradients.
    pub mean: Vec<E>,
    /// The mean of the squares of its gradients.
    pub square: Vec<E>,
}

/// The state before the first step.
impl<E> Default for AdamWState<E> {
    fn default() -> Self {
        Self {
            step: 0,
            moments: BTreeMap::new(),
        }
    }
}

impl<E> AdamWState<E> {
    /// All moments, by the names `<parameter>.mean` and `<parameter>.square`, in the order of the names.
    pub fn lists(&self) -> impl Iterator<Item = (String, &[E])> {
        self.moments.iter().flat_map(|(name, moments)| {
            let Moments { mean, square } = moments;
            [("mean", mean), ("square", square)]
                .map(|(moment, list)| (format!("{name}.{moment}"), list.as_slice()))
        })
    }

    /// The state after `step` steps with these [`lists`](Self::lists), in any order.
    ///
    /// [`AdamW::update`](super::AdamW::update) checks whether the lengths are those of the model.
    ///
    /// # Errors
    /// [`StateError`] with the first name that is not of this form, or whose other list is missing.
    pub fn from_lists(
        step: u64,
        lists: impl IntoIterator<Item = (String, Vec<E>)>,
    ) -> Result<Self, StateError> {
        let mut found = BTreeMap::<String, [Option<Vec<E>>; 2]>::new();
        for (name, list) in lists {
            let moment = match name.rsplit_once('.') {
                Some((parameter, "mean")) => Some((parameter, 0)),
                Some((parameter, "square")) => Some((parameter, 1)),
                _ => None,
            };
            let Some((parameter, moment)) = moment else {
                return Err(StateError::Unknown { name });
            };
            found.entry(parameter.into()).or_default()[moment] = Some(list);
        }
        let pairs = found.into_iter().map(|(name, pair)| match pair {
            [Some(mean), Some(square)] => Ok((name, Moments { mean, square })),
            [_, square] => {
                let moment = if square.is_some() { "mean" } else { "square" };
                let name = format!("{name}.{moment}");
                Err(StateError::Missing { name })
            }
        });
        let moments = pairs.collect::<Result<_, _>>()?;
        Ok(Self { step, moments })
    }
}

/// Lists that are not those of a state.
///
/// ```
/// use attn::train::AdamWState;
///
/// let error = AdamWState::from_lists(1, [("0.bias.mean".into(), vec![0.5])]).unwrap_err();
/// assert_eq!(error.to_string(), "the state has no 0.bias.square");
/// let error = AdamWState::from_lists(1, [("0.bias".into(), vec![0.5])]).unwrap_err();
/// assert_eq!(error.to_string(), "0.bias is not part of a state: expected a name that ends in .mean or .square");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A name that is not of the form of a state's list.
    #[error("{name} is not part of a state: expected a name that ends in .mean or .square")]
    Unknown {
        /// The name.
        name: String,
    },

    /// One of the two lists of a parameter is missing.
    #[error("the state has no {name}")]
    Missing {
        /// The missing name.
        name: String,
    },
}
