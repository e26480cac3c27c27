//! The errors between two steps.

/// Gradients that do not fit the model, or a state that does not, or dfdx's own error.
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
    /// Parameters that the backward pass did not reach, by their names. Nothing was changed, but that these gradients
    /// are there now and are 0, as if [`alloc_grads`](dfdx::nn::ZeroGrads::alloc_grads) had made them: for parameters that
    /// are left out on purpose, use that.
    #[error(
        "no gradient for {}: is it used by the loss, and is it of this model?",
        join(names)
    )]
    NoGradient {
        /// The names; a model that is a tensor has an empty one.
        names: Vec<String>,
    },

    /// Moments that are not those of the parameter: the state is of another model. Nothing was changed.
    #[error(
        "{} has {expected} numbers, but the state has {found} moments for it",
        or_nameless(name)
    )]
    StateMismatch {
        /// The parameter.
        name: String,
        /// How many numbers it has.
        expected: usize,
        /// How many the state has for it.
        found: usize,
    },

    /// The optimizer has done its steps so far with other parameters. Nothing was changed.
    #[error(
        "this optimizer is of another model, which has not the same {}: a second model takes an `AdamW` of its own",
        quoted(name)
    )]
    OtherModel {
        /// The first parameter, by its name, that one of the two has and the other has not.
        name: String,
    },

    /// A number that no step can be taken with. Nothing was changed.
    #[error("`{name}` is {found}, not {expected}")]
    Config {
        /// The number.
        name: &'static str,
        /// The value that was given.
        found: f64,
        /// The values that are allowed.
        expected: &'static str,
    },

    /// dfdx could not do it, for want of memory for example.
    #[error("{0}")]
    Device(Dev),
}

impl<Dev> From<Dev> for UpdateError<Dev> {
    fn from(error: Dev) -> Self {
        Self::Device(error)
    }
}

/// dfdx names a parameter by the fields on the way to it: a model that is a tensor has none.
fn or_nameless(name: &str) -> &str {
    match name {
        "" => "the parameter",
        name => name,
    }
}

fn quoted(name: &str) -> String {
    match name {
        "" => "parameter".into(),
        name => format!("`{name}`"),
    }
}

fn join(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| or_nameless(name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::UpdateError;

    #[test]
    fn a_parameter_without_a_name_is_spoken_of() {
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
        };
        let starts = [
            (no_gradient(&[""]), "no gradient for the parameter: "),
            (mismatch, "the parameter has 3 numbers, "),
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
