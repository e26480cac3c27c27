//! Errors of operations on gradients and parameters.

use super::InvalidSetting;

/// Gradients or a state that do not fit the model, or dfdx's own error.
///
/// ```
/// use attn::train::UpdateError;
///
/// let error: UpdateError<&str> = UpdateError::NoGradient { names: vec!["0.weight".into(), "0.bias".into()] };
/// assert_eq!(error.to_string(), "no gradient for 0.weight, 0.bias: is it used by the loss, and is it of this model?");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError<Dev> {
    /// Parameters that the backward pass did not reach, by name. Nothing has changed, except that these gradients exist now and
    /// are 0, as after [`alloc_grads`](dfdx::nn::ZeroGrads::alloc_grads). Use that for parameters that are left out on purpose.
    #[error(
        "no gradient for {}: is it used by the loss, and is it of this model?",
        join(names)
    )]
    NoGradient {
        /// The names. The name is empty if the model is a tensor.
        names: Vec<String>,
    },

    /// A list of the state does not fit its parameter: the state is of another model. Nothing has changed.
    #[error(
        "{} of this model has {expected} numbers, but the state has {found}",
        or_unnamed(name)
    )]
    StateMismatch {
        /// The name of the list, or of the parameter that it is an average of.
        name: String,
        /// The number of its elements for the model.
        expected: usize,
        /// The number of its elements in the state.
        found: usize,
    },

    /// Earlier steps updated other parameters. Nothing has changed.
    #[error(
        "this optimizer is of another model, which has not the same {}: a second model takes {} `{optimizer}` of its own",
        quoted(name),
        article(optimizer)
    )]
    OtherModel {
        /// The name of the first parameter that only one of the two has.
        name: String,
        /// The name of the algorithm.
        optimizer: &'static str,
    },

    /// A hyperparameter is not allowed. Nothing has changed.
    #[error("`{name}` is {found}, but must be {expected}")]
    Config {
        /// Its name.
        name: &'static str,
        /// Its value.
        found: f64,
        /// The values that are allowed.
        expected: &'static str,
    },

    /// A group of parameters, or a pattern of parameters to freeze, has none. Nothing has changed.
    #[error(
        "no parameter has a name like `{pattern}`: the names are {}",
        some_of(names)
    )]
    NoParameter {
        /// The pattern of the group.
        pattern: String,
        /// The names of all parameters.
        names: Vec<String>,
    },

    /// No parameter is trained. Nothing has changed. PyTorch: "element 0 of tensors does not require grad".
    #[error("all parameters are frozen: a step trains nothing")]
    AllFrozen,

    /// The algorithm cannot take a step now. Nothing has changed.
    #[error("{reason}")]
    NotReady {
        /// Why.
        reason: &'static str,
    },

    /// dfdx failed, for example for lack of memory.
    #[error(transparent)]
    Device(Dev),
}

impl<Dev> UpdateError<Dev> {
    pub(super) fn of_setting(invalid: InvalidSetting) -> Self {
        let InvalidSetting {
            name,
            found,
            expected,
        } = invalid;
        Self::Config {
            name,
            found,
            expected,
        }
    }
}

impl<Dev> From<Dev> for UpdateError<Dev> {
    fn from(error: Dev) -> Self {
        Self::Device(error)
    }
}

/// dfdx names a parameter by the path of its fields, which is empty for a model that is a tensor.
fn or_unnamed(name: &str) -> &str {
    match name {
        "" => "the parameter",
        name => name,
    }
}

fn article(name: &str) -> &'static str {
    let is_vowel = name.starts_with(['A', 'E', 'I', 'O', 'U']);
    if is_vowel { "an" } else { "a" }
}

fn quoted(name: &str) -> String {
    match name {
        "" => "parameter".into(),
        name => format!("`{name}`"),
    }
}

/// The first names, and how many there are beside them.
fn some_of(names: &[String]) -> String {
    const SOME: usize = 8;
    let first = &names[..names.len().min(SOME)];
    let named: Vec<_> = first.iter().map(|name| quoted(name)).collect();
    let named = named.join(", ");
    match names.len() - first.len() {
        0 => named,
        others => format!("{named}, and {others} more"),
    }
}

fn join(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| or_unnamed(name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::UpdateError;
    use crate::{Error, train::TrainError};

    #[derive(Debug, thiserror::Error)]
    #[error("the device is lost")]
    struct Lost(#[source] std::io::Error);

    #[test]
    fn the_causes_of_a_device_are_kept() {
        let lost = || Lost(std::io::Error::other("it was unplugged"));
        let update = UpdateError::Device(lost());
        let errors = [
            TrainError::from(UpdateError::Device(lost())),
            TrainError::from(Error::Device(lost())),
        ];
        let texts = [&update as &dyn std::error::Error, &errors[0], &errors[1]];
        for error in texts {
            assert_eq!(error.to_string(), "the device is lost");
            let source = error.source().map(ToString::to_string);
            assert_eq!(source.as_deref(), Some("it was unplugged"));
        }
    }

    #[test]
    fn a_parameter_without_a_name_is_described() {
        let no_gradient = |names: &[&str]| UpdateError::<&str>::NoGradient {
            names: names.iter().map(|&name| name.into()).collect(),
        };
        let mismatch = UpdateError::<&str>::StateMismatch {
            name: String::new(),
            expected: 3,
            found: 2,
        };
        let other = UpdateError::<&str>::OtherModel {
            name: String::new(),
            optimizer: "Lion",
        };
        let starts = [
            (no_gradient(&[""]), "no gradient for the parameter: "),
            (mismatch, "the parameter of this model has 3 numbers, "),
            (
                other,
                "this optimizer is of another model, which has not the same parameter: ",
            ),
        ];
        for (error, start) in starts {
            assert!(error.to_string().starts_with(start), "{error}");
        }
    }
}
