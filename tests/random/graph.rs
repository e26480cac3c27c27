//! A random model as a value: the same functions check all of them, and are compiled once.

use attn::{
    dfdx::{
        prelude::*,
        tensor::{PutTape, SplitTape},
    },
    memory,
};
use std::sync::{PoisonError, RwLock};
use support::{
    close::{Tolerance, assert_close},
    compare::Outcome,
    differences::{STEP, TOLERANCE, slope},
    numbers::scattered,
    reference::{State, Traced, parameters::Values},
    subject::Way,
};

/// The numbers of sequences and of tokens.
const SIZES: [[usize; 2]; 3] = [[2, 3], [1, 2], [3, 5]];

/// The difference of both forms, and of a session and a forward pass: some ten operations, whose sums have at most 60 terms, are
/// rounded at other places. That makes 1e-14; norms and quotients of small numbers make errors up to a thousand times as large.
const AGREEMENT: Tolerance = Tolerance::OfLargest(1e-11);

/// How many numbers are tried for a model, until central differences are those of a smooth function.
const TRIES: usize = 12;

/// Activations of a process are counted together: where they are, no other test runs.
static COUNTED: RwLock<()> = RwLock::new(());

/// An input: its name, its kind, and its axes.
pub(crate) type Input = (&'static str, &'static str, &'static [&'static str]);

/// A model, ready to run.
pub(crate) struct Graph {
    pub(crate) name: &'static str,
    pub(crate) inputs: &'static [Input],
    /// The parameters.
    pub(crate) parameters: fn() -> State,
    pub(crate) run: fn(Way, &State) -> Outcome,
    /// The most bytes that activations take in a step in `f32`.
    pub(crate) measured_bytes: fn(&State) -> usize,
    pub(crate) stated_bytes: fn([usize; 2]) -> usize,
    /// The vectors of a session, token by token.
    pub(crate) session: Option<fn(&State) -> Vec<f64>>,
}

impl Graph {
    pub(crate) fn check(&self) {
        for sizes in SIZES {
            let state = self.state(sizes, 0);
            {
                let _counted = COUNTED.write().unwrap_or_else(PoisonError::into_inner);
                let measured = (self.measured_bytes)(&state);
                let stated = (self.stated_bytes)(sizes);
                assert_eq!(measured, stated, "{}, {sizes:?}: bytes", self.name);
            }
            let _others = COUNTED.read().unwrap_or_else(PoisonError::into_inner);
            self.forms_agree(&state);
            if let Some(session) = self.session {
                self.session_agrees(session, sizes[1]);
            }
        }
        let _others = COUNTED.read().unwrap_or_else(PoisonError::into_inner);
        let is_smooth = (0..TRIES).any(|attempt| self.gradients_are_differences(attempt));
        assert!(is_smooth, "{} is nowhere smooth", self.name);
    }

    /// Numbers for the inputs and parameters, other ones for every attempt.
    fn state(&self, [batch, seq]: [usize; 2], attempt: usize) -> State {
        let mut state = (self.parameters)();
        let noise =
            |name: &str, count| scattered(&format!("{} {attempt} {name}", self.name), count);
        for (name, values) in &mut state.values {
            let is_gain = name.contains("norm") && name.ends_with("weight");
            let noise = noise(name, values.flat.len()).into_iter();
            let numbers = noise.map(|v| if is_gain { 1.0 + 0.5 * v } else { 0.7 * v });
            values.flat = numbers.collect();
        }
        for (name, kind, axes) in self.inputs {
            let size = |axis: &&str| match *axis {
                "batch" => batch,
                "seq" => seq,
                number => number.parse().unwrap(),
            };
            let dims: Vec<usize> = axes.iter().map(size).collect();
            let noise = noise(name, dims.iter().product()).into_iter();
            let flat = noise.map(|v| match *kind {
                "floats" => v,
                "ids" => (7.0 * v.abs()).floor(),
                "places" => (seq as f64 * v.abs()).floor(),
                "lens" => ((seq + 1) as f64 * v.abs()).floor(),
                _ => f64::from(v > -0.3),
            });
            let flat = flat.collect();
            state
                .values
                .insert((*name).to_owned(), Values { dims, flat });
        }
        state
    }

    fn forms_agree(&self, state: &State) {
        let fused = (self.run)(Way::Fused, state);
        let composed = (self.run)(Way::Composed, state);
        let names = |outcome: &Outcome| {
            outcome
                .all()
                .map(|(name, _)| name.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&fused), names(&composed), "{}", self.name);
        for (name, expected) in composed.all() {
            let what = format!("{}: {name}, fused and composed", self.name);
            assert_close(what, fused.get(name), expected, AGREEMENT);
        }
    }

    fn session_agrees(&self, session: fn(&State) -> Vec<f64>, seq: usize) {
        let state = self.state([1, seq], 0);
        let whole = (self.run)(Way::Fused, &state);
        let what = format!("{}: a session", self.name);
        assert_close(what, &session(&state), whole.get("output"), AGREEMENT);
    }

    /// Asserts that each gradient, along a direction, is that of differences. At a kink they tell nothing: then it is false.
    fn gradients_are_differences(&self, attempt: usize) -> bool {
        let state = self.state(SIZES[0], attempt);
        let outcome = (self.run)(Way::Fused, &state);
        for (name, gradient) in outcome.gradients() {
            if gradient.is_empty() {
                continue;
            }
            let direction = scattered(name, gradient.len());
            let length = dot(&direction, &direction).sqrt();
            let along = |step: f64| {
                let slope = slope(step, |by| {
                    let mut moved = state.clone();
                    for (x, d) in moved.flat_mut(name).iter_mut().zip(&direction) {
                        *x += by * d / length;
                    }
                    (self.run)(Way::Fused, &moved).loss()
                });
                [slope]
            };
            let found = [dot(gradient, &direction) / length];
            let [expected] = along(STEP);
            if is_near(found[0], expected) {
                continue;
            }
            let [closer] = along(STEP / 4.0);
            if !is_near(closer, expected) {
                return false;
            }
            let what = format!("{}: the gradient of {name}, and differences", self.name);
            assert_close(what, &found, &[expected], TOLERANCE);
        }
        true
    }
}

fn is_near(found: f64, expected: f64) -> bool {
    let Tolerance::OfEach(share) = TOLERANCE else {
        panic!("of each");
    };
    (found - expected).abs() <= share * expected.abs().max(1.0)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    std::iter::zip(a, b).map(|(a, b)| a * b).sum()
}

/// The peak bytes of activations during a forward and a backward pass.
pub(crate) fn peak<S: Shape>(forward: impl FnOnce() -> Traced<S, f32>) -> usize {
    let before = memory::allocated();
    memory::reset_peak();
    // Gradients of zero take as much memory as others.
    let (_, tape) = forward().split_tape();
    let loss: Tensor<Rank0, f32, _> = Cpu::default().zeros();
    loss.put_tape(tape).backward();
    assert_eq!(memory::allocated(), before, "all of it goes");
    memory::peak() - before
}

/// An input of a state.
pub(crate) fn input<S: Shape, T: Number>(state: &State, name: &str) -> Tensor<S, T, Cpu>
where
    Cpu: TensorFromVec<T>,
{
    let values = state.get(name);
    let mut dims = S::Concrete::default();
    for (at, &size) in values.dims.iter().enumerate() {
        dims[at] = size;
    }
    let shape = S::from_concrete(&dims).unwrap();
    let numbers = values.flat.iter().map(|&number| T::of(number));
    Cpu::default().tensor_from_vec(numbers.collect(), shape)
}

/// An element of an input.
pub(crate) trait Number: Unit {
    fn of(number: f64) -> Self;
}

impl Number for f64 {
    fn of(number: f64) -> Self {
        number
    }
}

impl Number for f32 {
    fn of(number: f64) -> Self {
        number as f32
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

/// A test for each model: `name { the model } (input: kind[axes], ..);`, and `in a session` if it has one.
macro_rules! graphs {
    ($($name:ident $model:tt $inputs:tt $(in a $session:ident)?;)+) => {
        $(graphs!(@test $name $model $inputs [$($session)?]);)+
    };
    (@test $name:ident { $($model:tt)* }
        ($first:ident: $kind:ident $shape:tt $(, $other:ident: $other_kind:ident $other_shape:tt)*) $session:tt
    ) => {
        #[test]
        fn $name() {
            use $crate::graph::{self, Graph};
            use attn::{dfdx::prelude::*, model};
            use support::{
                compare::{Outcome, backpropagate},
                parameters::{add_gradients, make, state},
                reference::State,
                subject::Way,
            };

            model! { $($model)* }

            fn run(way: Way, state: &State) -> Outcome {
                let (model, parameters) = make::<M<f64>, f64>(state);
                let $first = graphs!(@input f64 state $first $kind $shape);
                $(let $other = graphs!(@input f64 state $other $other_kind $other_shape);)*
                let input = graphs!(@call $first.clone().leaky_traced() $(, $other.clone())*);
                let y = match way {
                    Way::Fused => model.forward(input),
                    Way::Composed => model.composed().forward(input),
                };
                let ran = backpropagate(y);
                let ran = graphs!(@gradient ran $first $kind);
                $(let ran = graphs!(@gradient ran $other $other_kind);)*
                add_gradients(ran, &parameters)
            }

            fn measured_bytes(state: &State) -> usize {
                let (mut model, _) = make::<M<f32>, f32>(state);
                let $first = graphs!(@input f32 state $first $kind $shape);
                $(let $other = graphs!(@input f32 state $other $other_kind $other_shape);)*
                let input = graphs!(@call $first.leaky_traced() $(, $other)*);
                graph::peak(|| model.forward_mut(input))
            }

            let graph = Graph {
                name: stringify!($name),
                inputs: &[
                    graphs!(@named $first $kind $shape)
                    $(, graphs!(@named $other $other_kind $other_shape))*
                ],
                parameters: state::<M<f64>, f64>,
                run,
                measured_bytes,
                stated_bytes: |[batch, seq]| M::activation_bytes(batch, seq),
                session: graphs!(@session $session),
            };
            graph.check();
        }
    };
    (@session []) => { None };
    (@session [session]) => {
        Some(|state| {
            let (model, _) = make::<M<f64>, f64>(state);
            let tokens = &state.get("tokens").flat;
            let mut session = model.session(tokens.len()).unwrap();
            let mut results = Vec::new();
            for token in tokens {
                results.extend_from_slice(session.prefill(&[*token as usize]).unwrap());
            }
            results
        })
    };
    (@named $name:ident $kind:ident [$($axis:tt),*]) => {
        (stringify!($name), stringify!($kind), &[$(stringify!($axis)),*])
    };
    (@call $input:expr) => { $input };
    (@call $($input:expr),+) => { ($($input),+) };
    (@input $element:ident $state:ident $name:ident floats $shape:tt) => {
        graph::input::<graphs!(@shape $shape), $element>($state, stringify!($name))
    };
    (@input $element:ident $state:ident $name:ident marks $shape:tt) => {
        graph::input::<graphs!(@shape $shape), bool>($state, stringify!($name))
    };
    (@input $element:ident $state:ident $name:ident $kind:ident $shape:tt) => {
        graph::input::<graphs!(@shape $shape), usize>($state, stringify!($name))
    };
    (@shape [$($axis:tt),*]) => { ($(graphs!(@axis $axis),)*) };
    (@axis $size:literal) => { Const<$size> };
    (@axis $name:ident) => { usize };
    (@gradient $ran:ident $name:ident floats) => { $ran.input(stringify!($name), &$name) };
    (@gradient $ran:ident $name:ident $kind:ident) => { $ran };
}
