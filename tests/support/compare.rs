//! Runs a layer, collects its results by name, and compares them with another way of computing them.

pub use crate::close::assert_close;
use crate::parameters::{self, add_gradients, make};
use crate::reference::{Input, Parameters, State, Traced, number, parameters::scattered};
use crate::tensors;
pub use crate::tensors::flat;
use dfdx::prelude::*;
use num_traits::Float;
use std::{collections::BTreeMap, fmt::Display};

/// All results, flat, by name: `output`, `weights`, `gradient of x`, `gradient of q_proj.weight`, ...
///
/// The gradients are those of [`Outcome::loss`].
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    values: BTreeMap<String, Vec<f64>>,
    loss: f64,
}

impl Outcome {
    pub fn get(&self, name: &str) -> &[f64] {
        match self.values.get(name) {
            Some(values) => values,
            None => panic!("{name} is not among what was computed"),
        }
    }

    pub fn gradient(&self, name: &str) -> &[f64] {
        self.get(&format!("gradient of {name}"))
    }

    /// All results, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &[f64])> {
        let all = self.values.iter();
        all.map(|(name, values)| (name.as_str(), &values[..]))
    }

    /// All gradients, by name.
    pub fn gradients(&self) -> impl Iterator<Item = (&str, &[f64])> {
        let all = self.values.iter();
        all.filter_map(|(name, values)| Some((name.strip_prefix("gradient of ")?, &values[..])))
    }

    /// The sum of the output's elements, each times a fixed factor. A plain sum would hide mistakes that cancel, as in the
    /// weights of a softmax, whose sum is always 1.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Adds the weights.
    pub fn weights<S: Shape, E: Dtype, T>(mut self, weights: &Tensor<S, E, Cpu, T>) -> Self
    where
        Cpu: Device<E>,
    {
        self.values.insert("weights".into(), flat(weights));
        self
    }
}

/// The output of a layer after the backward pass, before its gradients are read.
pub struct Backpropagated<E: Dtype>
where
    Cpu: Device<E>,
{
    outcome: Outcome,
    gradients: Gradients<E, Cpu>,
}

/// Reads the output of a layer and runs the backward pass.
pub fn backpropagate<S: Shape, E: Dtype>(output: Traced<S, E>) -> Backpropagated<E>
where
    Cpu: Device<E>,
{
    let values = flat(&output);
    Backpropagated::of([("output", values)], weighted_sum(output))
}

/// The sum of the elements, each times a fixed factor.
pub fn weighted_sum<S: Shape, E: Dtype, T: Tape<E, Cpu>>(
    output: Tensor<S, E, Cpu, T>,
) -> Tensor<Rank0, E, Cpu, T>
where
    Cpu: Device<E>,
{
    let shape = *output.shape();
    let factors = scattered("factors of the loss", shape.num_elements());
    let factors = factors.into_iter().map(number).collect();
    (output * Cpu::default().tensor_from_vec(factors, shape)).sum()
}

impl<E: Dtype> Backpropagated<E>
where
    Cpu: Device<E>,
{
    /// Runs the backward pass from a loss, which was computed of these outputs.
    pub fn of<const N: usize>(outputs: [(&str, Vec<f64>); N], loss: Traced<Rank0, E>) -> Self {
        let outputs = outputs.map(|(name, values)| (name.to_owned(), values));
        let outcome = Outcome {
            values: outputs.into(),
            loss: flat(&loss)[0],
        };
        Backpropagated {
            outcome,
            gradients: loss.backward(),
        }
    }

    /// Adds the gradient of an input.
    pub fn input<S: Shape>(mut self, name: &str, input: &Tensor<S, E, Cpu>) -> Self {
        self.add(name, flat(&self.gradients.get(input)));
        self
    }

    /// Adds the gradients of all parameters of a layer, under the names by which the layer is saved.
    pub fn parameters<L: TensorCollection<E, Cpu>>(mut self, layer: &L) -> Outcome {
        for parameter in tensors::gradients(layer, &self.gradients) {
            self.add(&parameter.name, parameter.values);
        }
        self.outcome
    }

    /// All results so far.
    pub fn outcome(self) -> Outcome {
        self.outcome
    }

    fn add(&mut self, name: &str, gradient: Vec<f64>) {
        let twice = self
            .outcome
            .values
            .insert(format!("gradient of {name}"), gradient);
        assert!(twice.is_none(), "two gradients of {name}");
    }
}

/// Numbers for the inputs of these dimensions and for all parameters of a layer.
pub fn state_for<L, E>(inputs: &[(&str, &[usize])]) -> State
where
    L: TensorCollection<E, Cpu, To<E, Cpu> = L>,
    E: Dtype,
    Cpu: Device<E>,
{
    let mut state = parameters::state::<L, E>();
    for (name, dims) in inputs {
        state.insert(name, dims);
    }
    state
}

/// A layer with the parameters of this state.
pub fn layer_with<L, E>(state: &State) -> L
where
    L: TensorCollection<E, Cpu, To<E, Cpu> = L>,
    E: Dtype,
    Cpu: Device<E>,
{
    make(state).0
}

/// Runs a hand-written layer on the input `x`.
pub fn by_hand<E: Dtype, S: Shape, W: Shape, T>(
    state: &State,
    layer: impl FnOnce(&Parameters<'_, E>, &Input<E>) -> (Traced<S, E>, Tensor<W, E, Cpu, T>),
) -> Outcome
where
    Cpu: Device<E>,
{
    let parameters = Parameters::new(state);
    let x = input(state, "x");
    let (output, weights) = layer(&parameters, &x);
    finish(&parameters, backpropagate(output).input("x", &x)).weights(&weights)
}

/// Runs a hand-written layer on the inputs `x` and `context`.
pub fn by_hand_with_context<E: Dtype, S: Shape, W: Shape, T>(
    state: &State,
    layer: impl FnOnce(&Parameters<'_, E>, &Input<E>, &Input<E>) -> (Traced<S, E>, Tensor<W, E, Cpu, T>),
) -> Outcome
where
    Cpu: Device<E>,
{
    let parameters = Parameters::new(state);
    let x = input(state, "x");
    let context = input(state, "context");
    let (output, weights) = layer(&parameters, &x, &context);
    let ran = backpropagate(output)
        .input("x", &x)
        .input("context", &context);
    finish(&parameters, ran).weights(&weights)
}

fn input<E: Dtype>(state: &State, name: &str) -> Input<E>
where
    Cpu: Device<E>,
{
    match *state.get(name).dims {
        [batch, length, width] => state.tensor(name, (batch, length, width)),
        ref dims => panic!("{name} is [batch, length, width], found {dims:?}"),
    }
}

fn finish<E: Dtype>(parameters: &Parameters<'_, E>, mut ran: Backpropagated<E>) -> Outcome
where
    Cpu: Device<E>,
{
    for (name, gradient) in parameters.gradients(&ran.gradients) {
        ran.add(&name, gradient);
    }
    ran.outcome
}

/// The allowed difference of two ways of computing the same, relative to the largest element of a tensor (or 1).
///
/// Both round every operation, and where one adds in another order, so do the errors. From the input to the gradient of a weight
/// the sums here run over at most 24 (width), 12 (a head), 11 (keys), 24 (heads joined), 24 (width), then 12, 11, 24 and 24 again
/// backwards, and 33 tokens of a batch: 200 terms of order 1, each rounded by ε/2 in either direction. Such errors add up to √200
/// ε/2 = 7 ε. Seven times that covers terms larger than 1 and the functions in between.
pub fn tolerance<E: Float>() -> f64 {
    50.0 * E::epsilon().to_f64().expect("f32 and f64 have one")
}

/// Asserts that all of `declared` is in `expected` with the same values, and that no gradient is missing.
#[track_caller]
pub fn assert_same(what: impl Display, declared: &Outcome, expected: &Outcome, tolerance: f64) {
    let names = |outcome: &Outcome| {
        let gradients = outcome.gradients();
        gradients
            .map(|(name, _)| name.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(declared),
        names(expected),
        "{what}: what has a gradient"
    );
    for (name, values) in &declared.values {
        assert_close(
            format_args!("{what}: {name}"),
            values,
            expected.get(name),
            tolerance,
        );
    }
}

/// Batch sizes and lengths for the comparison of self-attention. The first ones are also run unbatched.
pub const SELF_SIZES: [(usize, usize); 4] = [(1, 1), (1, 6), (2, 5), (3, 11)];

/// Batch sizes and numbers of queries and keys for the comparison of cross-attention.
pub const CROSS_SIZES: [(usize, usize, usize); 5] =
    [(1, 1, 1), (1, 1, 6), (1, 5, 1), (2, 4, 7), (3, 11, 5)];

/// A layer's output and weights, for tensors without a tape.
pub type WithWeights<S, W, E> = (Tensor<S, E, Cpu>, Tensor<W, E, Cpu>);

/// Compares a declared self-attention with a hand-written one: batched and with weights for all [`SELF_SIZES`], unbatched where
/// the batch is 1, and with dimensions known at compile time.
pub fn compare_self_attention<const M: usize, L, E, W: Shape>(
    by_hand: impl Fn(&State) -> Outcome,
    batched: impl Fn(&L, Traced<(usize, usize, Const<M>), E>) -> Traced<(usize, usize, Const<M>), E>,
    with_weights: impl Fn(
        &L,
        Tensor<(usize, usize, Const<M>), E, Cpu>,
    ) -> WithWeights<(usize, usize, Const<M>), W, E>,
    unbatched: impl Fn(&L, Traced<(usize, Const<M>), E>) -> Traced<(usize, Const<M>), E>,
    fixed: impl Fn(&L, Traced<Rank3<2, 5, M>, E>) -> Traced<Rank3<2, 5, M>, E>,
) where
    L: TensorCollection<E, Cpu, To<E, Cpu> = L>,
    E: Dtype + Float,
    Cpu: Device<E>,
{
    let tolerance = tolerance::<E>();
    for (batch, length) in SELF_SIZES {
        let state = state_for::<L, E>(&[("x", &[batch, length, M])]);
        let (layer, parameters) = make::<L, E>(&state);
        let expected = by_hand(&state);
        let name =
            |form: &str| format!("{form}, {batch} x {length}, {}", std::any::type_name::<E>());

        let x = state.tensor("x", (batch, length, Const::<M>));
        let ran = backpropagate(batched(&layer, x.leaky_trace())).input("x", &x);
        assert_same(
            name("batched"),
            &add_gradients(ran, &parameters),
            &expected,
            tolerance,
        );

        let (output, weights) = with_weights(&layer, x);
        let what = name("output beside weights");
        assert_close(what, &flat(&output), expected.get("output"), tolerance);
        let what = name("weights");
        assert_close(what, &flat(&weights), expected.get("weights"), tolerance);

        if batch == 1 {
            let x = state.tensor("x", (length, Const::<M>));
            let ran = backpropagate(unbatched(&layer, x.leaky_trace())).input("x", &x);
            assert_same(
                name("unbatched"),
                &add_gradients(ran, &parameters),
                &expected,
                tolerance,
            );
        }
        if (batch, length) == (2, 5) {
            let x = state.tensor("x", (Const, Const, Const));
            let ran = backpropagate(fixed(&layer, x.leaky_trace())).input("x", &x);
            assert_same(
                name("fixed"),
                &add_gradients(ran, &parameters),
                &expected,
                tolerance,
            );
        }
    }
}

/// Compares a declared cross-attention with a hand-written one, as [`compare_self_attention`] does.
pub fn compare_cross_attention<const M: usize, const C: usize, L, E, W: Shape>(
    by_hand: impl Fn(&State) -> Outcome,
    batched: impl Fn(
        &L,
        Traced<(usize, usize, Const<M>), E>,
        Tensor<(usize, usize, Const<C>), E, Cpu>,
    ) -> Traced<(usize, usize, Const<M>), E>,
    with_weights: impl Fn(
        &L,
        Tensor<(usize, usize, Const<M>), E, Cpu>,
        Tensor<(usize, usize, Const<C>), E, Cpu>,
    ) -> WithWeights<(usize, usize, Const<M>), W, E>,
    unbatched: impl Fn(
        &L,
        Traced<(usize, Const<M>), E>,
        Tensor<(usize, Const<C>), E, Cpu>,
    ) -> Traced<(usize, Const<M>), E>,
    fixed: impl Fn(
        &L,
        Traced<Rank3<2, 4, M>, E>,
        Tensor<Rank3<2, 7, C>, E, Cpu>,
    ) -> Traced<Rank3<2, 4, M>, E>,
) where
    L: TensorCollection<E, Cpu, To<E, Cpu> = L>,
    E: Dtype + Float,
    Cpu: Device<E>,
{
    let tolerance = tolerance::<E>();
    for (batch, queries, keys) in CROSS_SIZES {
        let dims: [(&str, &[usize]); 2] =
            [("x", &[batch, queries, M]), ("context", &[batch, keys, C])];
        let state = state_for::<L, E>(&dims);
        let (layer, parameters) = make::<L, E>(&state);
        let expected = by_hand(&state);
        let name = |form: &str| {
            let dtype = std::any::type_name::<E>();
            format!("{form}, {batch} x {queries} x {keys}, {dtype}")
        };

        let x = state.tensor("x", (batch, queries, Const::<M>));
        let context = state.tensor("context", (batch, keys, Const::<C>));
        let output = batched(&layer, x.leaky_trace(), context.clone());
        let ran = backpropagate(output)
            .input("x", &x)
            .input("context", &context);
        assert_same(
            name("batched"),
            &add_gradients(ran, &parameters),
            &expected,
            tolerance,
        );

        let (output, weights) = with_weights(&layer, x, context);
        let what = name("output beside weights");
        assert_close(what, &flat(&output), expected.get("output"), tolerance);
        let what = name("weights");
        assert_close(what, &flat(&weights), expected.get("weights"), tolerance);

        if batch == 1 {
            let x = state.tensor("x", (queries, Const::<M>));
            let context = state.tensor("context", (keys, Const::<C>));
            let output = unbatched(&layer, x.leaky_trace(), context.clone());
            let ran = backpropagate(output)
                .input("x", &x)
                .input("context", &context);
            assert_same(
                name("unbatched"),
                &add_gradients(ran, &parameters),
                &expected,
                tolerance,
            );
        }
        if (batch, queries, keys) == (2, 4, 7) {
            let x = state.tensor("x", (Const, Const, Const));
            let context = state.tensor("context", (Const, Const, Const));
            let output = fixed(&layer, x.leaky_trace(), context.clone());
            let ran = backpropagate(output)
                .input("x", &x)
                .input("context", &context);
            assert_same(
                name("fixed"),
                &add_gradients(ran, &parameters),
                &expected,
                tolerance,
            );
        }
    }
}
