//! What two modules computed, number by number.

use std::fmt::{self, Display};

use super::{results::Found, tensors::element};
use crate::{Element, sizes::index_of};

/// Numbers are close if `|found - expected| <= atol + rtol · |expected|`, as `torch.allclose` has it. An infinity is close to itself only,
/// and NaN to nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The allowed difference relative to the expected number.
    pub rtol: f64,
    /// The allowed difference of any size of numbers.
    pub atol: f64,
}

impl Tolerance {
    /// The defaults of `torch.testing.assert_close`: 1.3e-6 and 1e-5 for `f32`, 1e-7 and 1e-7 for `f64`.
    pub fn of<E: Element>() -> Self {
        let [rtol, atol] = match size_of::<E>() {
            4 => [1.3e-6, 1e-5],
            _ => [1e-7, 1e-7],
        };
        Self { rtol, atol }
    }

    /// The allowed distance from a number.
    pub fn around(&self, expected: f64) -> f64 {
        self.atol + self.rtol * expected.abs()
    }

    /// Whether a number is close to the expected one.
    pub fn is_close(&self, found: f64, expected: f64) -> bool {
        let is_near = expected.is_finite() && (found - expected).abs() <= self.around(expected);
        found == expected || is_near
    }
}

/// The result of [`compare`](super::compare()).
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The results, then the gradients of the inputs and of the parameters, in the order of the first module.
    pub tensors: Vec<ComparedTensor>,
}

/// A result or a gradient of both modules.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedTensor {
    /// For example `the result`, `the gradient of the input`, `the gradient of q_proj.weight`. A parameter with two names has that of the
    /// second module in parentheses.
    pub name: String,
    /// The sizes of its axes.
    pub dims: Vec<usize>,
    /// The number of elements that are not close.
    pub differing: usize,
    /// The first of them.
    pub first: Option<Difference>,
    /// The largest difference of all, close or not. `None` for an empty tensor.
    pub largest: Option<Difference>,
}

/// An element of both modules.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The index of the element.
    pub index: Vec<usize>,
    /// Its value in the first module.
    pub found: f64,
    /// Its value in the second module.
    pub expected: f64,
    /// The allowed difference.
    pub allowed: f64,
}

impl Difference {
    /// The difference of both values.
    pub fn size(&self) -> f64 {
        (self.found - self.expected).abs()
    }
}

impl ComparedTensor {
    pub(super) fn of(found: Found, expected: &[f64], tolerance: Tolerance) -> Self {
        let Found { name, dims, values } = found;
        let at = |place: usize| Difference {
            index: index_of(place, &dims),
            found: values[place],
            expected: expected[place],
            allowed: tolerance.around(expected[place]),
        };
        let is_far = |place: &usize| !tolerance.is_close(values[*place], expected[*place]);
        let far: Vec<usize> = (0..values.len()).filter(is_far).collect();
        // Equal infinities have the difference NaN.
        let size = |place: &usize| match values[*place] == expected[*place] {
            true => 0.0,
            false => (values[*place] - expected[*place]).abs(),
        };
        let largest = (0..values.len()).max_by(|a, b| size(a).total_cmp(&size(b)));
        Self {
            differing: far.len(),
            first: far.first().map(|place| at(*place)),
            largest: largest.map(at),
            name,
            dims,
        }
    }
}

impl Comparison {
    /// Whether everything is close.
    pub fn is_same(&self) -> bool {
        self.tensors.iter().all(|tensor| tensor.first.is_none())
    }

    /// The first result or gradient that differs, with its first element that does.
    pub fn first(&self) -> Option<(&ComparedTensor, &Difference)> {
        let mut tensors = self.tensors.iter();
        tensors.find_map(|tensor| Some((tensor, tensor.first.as_ref()?)))
    }
}

/// A line for each tensor that differs, the first one with numbers; or for each tensor if all are close.
impl Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((tensor, at)) = self.first() {
            let Difference {
                found,
                expected,
                allowed,
                ..
            } = at;
            writeln!(
                f,
                "{} is {found}, expected {expected} ± {allowed:.1e}",
                element(&tensor.name, &at.index)
            )?;
        }
        for tensor in &self.tensors {
            let ComparedTensor {
                name, differing, ..
            } = tensor;
            let count: usize = tensor.dims.iter().product();
            let Some(largest) = &tensor.largest else {
                continue;
            };
            let size = largest.size();
            match differing {
                0 if self.is_same() => writeln!(f, "{name}: differences of {size:.1e} at most")?,
                0 => {}
                _ => writeln!(
                    f,
                    "{name}: {differing} of {count} numbers differ, by {size:.1e} at most, at {:?}",
                    largest.index
                )?,
            }
        }
        Ok(())
    }
}
