//! The results of the operations of a model.

use std::fmt;

use crate::{
    Error,
    entry::{ForwardOptions, Observer},
    model::Outline,
};

/// The results of all operations of a pass, in the order of execution.
#[derive(Clone, PartialEq, Debug)]
pub struct Values(Vec<Value>);

/// The result of an operation.
#[derive(Clone, PartialEq)]
pub struct Value {
    name: String,
    operation: String,
    shape: Vec<usize>,
    numbers: Vec<f64>,
}

impl Values {
    /// The value of this name: `x`, or `blocks.1.x` for that of the second round of a loop. Of several it is the last one, which a variable
    /// has in the end.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().rev().find(|value| value.name == name)
    }

    /// All values, in the order of execution.
    pub fn iter(&self) -> std::slice::Iter<'_, Value> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the model computes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Values {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Value {
    /// The variable that has the value, or the kind of the operation where there is none, behind the loops that it stands in: `blocks.1.x`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operation that computes it: the name of its layer, `blocks.1.attention`, or what it computes, `blocks.1.+`.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The size of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The numbers, row-major. They are exact for `f32` and for `f64`.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}, by {}", self.name, self.shape, self.operation)
    }
}

/// Runs a model as a chain of operations and returns their results.
///
/// # Errors
/// The error of the model.
pub fn record_values<Output, Dev>(
    run: impl FnOnce(ForwardOptions<'_>) -> Result<Output, Error<Dev>>,
    outline: impl FnOnce(&mut Outline),
) -> Result<Values, Error<Dev>> {
    let observer = Observer::of_numbers();
    run(ForwardOptions {
        observer: Some(&observer),
        ..ForwardOptions::FORWARD
    })?;
    let mut of = Outline::default();
    outline(&mut of);
    let results = observer.into_seen().results;
    debug_assert_eq!(results.len(), of.results.len(), "each of them runs");
    let values = results.into_iter().zip(of.results);
    let values = values.map(|(seen, named)| Value {
        name: named.value,
        operation: named.operation,
        shape: seen.shape,
        numbers: seen.numbers,
    });
    Ok(Values(values.collect()))
}
