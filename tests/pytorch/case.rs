//! A case of a file, and a model that is compared with it.

use attn::dfdx::prelude::*;
use std::{collections::BTreeMap, path::Path};
use support::{
    close::{Tolerance, assert_close},
    compare::{Backpropagated, Outcome, flat, weighted_sum},
    reference::{State, Traced, parameters::Values},
    safetensors::{self, Stored},
};

/// The difference from PyTorch, whose `f64` rounds as well: sums of at most 100 terms one after the other, in another order than
/// ours, on about ten levels, make an error of about √1000 ε / 2 = 4e-15 of the largest number; ten times that for terms that are
/// larger than 1, and cancel.
const OF_OPERATIONS: Tolerance = Tolerance::OfLargest(4e-14);

/// The same for whole models, of about fifty levels, where norms of small numbers and softmaxes make errors some ten times as large. An
/// epsilon of 1e-5 in place of 1e-6 would make 1e-6.
const OF_MODELS: Tolerance = Tolerance::OfLargest(1e-12);

/// All gradients of a case, in the order of the names.
const GRADIENTS: &str = "gradients";

/// What PyTorch computed for one model.
pub(crate) struct Case {
    name: &'static str,
    tolerance: Tolerance,
    tensors: BTreeMap<String, Stored>,
}

impl Case {
    /// The case with this name in the file of a module.
    pub(crate) fn read(module: &str, name: &'static str) -> Self {
        let (_, file) = module.split_once("::").unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pytorch");
        let path = folder.join(format!("{}.safetensors", file.replace("::", "/")));
        let tensors = safetensors::read(&path).into_iter();
        let tensors = tensors.filter_map(|(key, tensor)| {
            let key = key.strip_prefix(name)?.strip_prefix('/')?;
            Some((key.to_owned(), tensor))
        });
        let tensors: BTreeMap<_, _> = tensors.collect();
        assert!(!tensors.is_empty(), "{} has no `{name}`", path.display());
        let tolerance = match file.starts_with("models") {
            true => OF_MODELS,
            false => OF_OPERATIONS,
        };
        Case {
            name,
            tolerance,
            tensors,
        }
    }

    /// The inputs and parameters.
    pub(crate) fn state(&self) -> State {
        let given = self.tensors.iter();
        let given = given.filter(|(key, _)| !is_result(key));
        let values = given.map(|(key, tensor)| {
            let values = Values {
                dims: tensor.dims.clone(),
                flat: tensor.numbers(),
            };
            (key.clone(), values)
        });
        State {
            values: values.collect(),
        }
    }

    pub(crate) fn input<S: Shape, T: Number>(&self, name: &str) -> Tensor<S, T, Cpu>
    where
        Cpu: TensorFromVec<T>,
    {
        let tensor = &self.tensors[name];
        let mut dims = S::Concrete::default();
        assert_eq!(tensor.dims.len(), S::NUM_DIMS, "the axes of {name}");
        for (at, &size) in tensor.dims.iter().enumerate() {
            dims[at] = size;
        }
        let shape = S::from_concrete(&dims);
        let shape = shape.unwrap_or_else(|| panic!("{name} has the axes {dims:?}"));
        let numbers = tensor.numbers().into_iter().map(T::of);
        Cpu::default().tensor_from_vec(numbers.collect(), shape)
    }

    /// Asserts that a form computes all that PyTorch did: every output, and every gradient.
    pub(crate) fn assert_same(&self, form: &str, found: &Outcome) {
        let mut expected: BTreeMap<_, _> = self.tensors.iter().collect();
        expected.retain(|key, _| is_result(key));
        let gradients = expected.remove(&GRADIENTS.to_owned()).unwrap().numbers();
        let mut gradients = gradients.as_slice();
        for (key, found) in found.all() {
            let what = format!("{}, {form}: {key}", self.name);
            let expected = match expected.remove(&key.to_owned()) {
                Some(output) => output.numbers(),
                // The next ones, as both are in the order of the names.
                None => {
                    let split = gradients.split_at_checked(found.len());
                    let (gradient, rest) = split.unwrap_or_else(|| panic!("{what} is not there"));
                    gradients = rest;
                    gradient.to_vec()
                }
            };
            assert_close(what, found, &expected, self.tolerance);
        }
        let left = (expected.len(), gradients.len());
        assert_eq!(left, (0, 0), "{}, {form}: not computed", self.name);
    }

    /// Asserts that the parameters in the file are those of the model.
    pub(crate) fn assert_parameters<'p>(
        &self,
        found: impl Iterator<Item = &'p str>,
        inputs: &[&'static str],
    ) {
        let mut found: Vec<&str> = found.chain(inputs.iter().copied()).collect();
        found.sort_unstable();
        let state = self.state();
        let given: Vec<&str> = state.values.keys().map(String::as_str).collect();
        assert_eq!(found, given, "{}: inputs and parameters", self.name);
    }
}

fn is_result(key: &str) -> bool {
    key == GRADIENTS || key.starts_with("output")
}

/// An element of an input, of which files have a number.
pub(crate) trait Number: Unit {
    fn of(number: f64) -> Self;
}

impl Number for f64 {
    fn of(number: f64) -> Self {
        number
    }
}

impl Number for usize {
    fn of(number: f64) -> Self {
        number as usize
    }
}

impl Number for bool {
    fn of(number: f64) -> Self {
        number != 0.0
    }
}

/// One result of a model, or several, of which the first has the tape.
pub(crate) trait Results {
    fn backpropagate(self) -> Backpropagated<f64>;
}

impl<S: Shape> Results for Traced<S, f64> {
    fn backpropagate(self) -> Backpropagated<f64> {
        support::compare::backpropagate(self)
    }
}

impl<S: Shape, Z: Shape> Results for (Traced<S, f64>, Traced<Z, f64>) {
    fn backpropagate(self) -> Backpropagated<f64> {
        let (first, second) = self;
        let outputs = [("output", flat(&first)), ("output 2", flat(&second))];
        let loss = weighted_sum(first) + weighted_sum(second);
        Backpropagated::of(outputs, loss)
    }
}

/// Models beside cases of the file of this module: `name { the model } (input: kind[axes], ..);`
///
/// A kind is `floats`, which have a gradient, `data`, floats without one, `ids`, `lens` or `bools`. An axis is a number, which is a
/// `Const`, or `_`, which is a `usize`.
macro_rules! cases {
    ($($name:ident $model:tt ($($input:ident: $kind:ident $shape:tt),+);)*) => {
        /// The models, as they are written.
        pub(crate) const MODELS: &[&str] = &[$(stringify!($model)),*];

        $(cases!(@test $name $model ($($input: $kind $shape),+));)*
    };
    (@test $name:ident { $($model:tt)* } ($first:ident: $kind:ident $shape:tt $(, $other:ident: $other_kind:ident $other_shape:tt)*)) => {
        #[test]
        fn $name() {
            use $crate::case::{Case, Results};
            use attn::{dfdx::prelude::*, model};
            use support::parameters::{add_gradients, make};

            model! { $($model)* }

            let case = Case::read(module_path!(), stringify!($name));
            let (model, parameters) = make::<M<f64>, f64>(&case.state());
            case.assert_parameters(parameters.iter().map(|parameter| parameter.name()), &[stringify!($first) $(, stringify!($other))*]);
            let $first = cases!(@input case $first $kind $shape);
            $(let $other = cases!(@input case $other $other_kind $other_shape);)*
            let outcome = |ran: Backpropagated<f64>| {
                let ran = cases!(@gradient ran $first $kind);
                $(let ran = cases!(@gradient ran $other $other_kind);)*
                add_gradients(ran, &parameters)
            };
            use support::compare::Backpropagated;
            let y = model.forward(cases!(@call $first.clone().leaky_traced() $(, $other.clone())*));
            case.assert_same("fused", &outcome(y.backpropagate()));
            let y = model.composed().forward(cases!(@call $first.clone().leaky_traced() $(, $other.clone())*));
            case.assert_same("composed", &outcome(y.backpropagate()));
        }
    };
    (@call $input:expr) => { $input };
    (@call $($input:expr),+) => { ($($input),+) };
    (@input $case:ident $name:ident floats $shape:tt) => { cases!(@input $case $name data $shape) };
    (@input $case:ident $name:ident data $shape:tt) => {
        $case.input::<cases!(@shape $shape), f64>(stringify!($name))
    };
    (@input $case:ident $name:ident bools $shape:tt) => {
        $case.input::<cases!(@shape $shape), bool>(stringify!($name))
    };
    (@input $case:ident $name:ident $kind:ident $shape:tt) => {
        $case.input::<cases!(@shape $shape), usize>(stringify!($name))
    };
    (@shape [$($axis:tt),*]) => { ($(cases!(@axis $axis),)*) };
    (@axis _) => { usize };
    (@axis $size:literal) => { Const<$size> };
    (@gradient $ran:ident $name:ident floats) => { $ran.input(stringify!($name), &$name) };
    (@gradient $ran:ident $name:ident $kind:ident) => { $ran };
}
