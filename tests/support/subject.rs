//! A declared layer as a value: the same functions run all of them, and are compiled once.

use crate::compare::{Backpropagated, Outcome, backpropagate};
use crate::reference::{State, Traced, number};
use dfdx::prelude::*;

/// The form that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Fused,
    Composed,
}

/// A layer, ready to run. Made by `subject!`.
pub struct Subject {
    pub d_model: usize,
    /// The width of the context, if there is one.
    pub d_context: Option<usize>,
    /// The width of the input that gives the values, if there is one.
    pub d_values: Option<usize>,
    /// The parameters.
    pub state: fn() -> State,
    /// Runs it in `f32`, and differentiates.
    pub single: fn(Way, &Case) -> Outcome,
    /// Runs it in `f64`, and differentiates.
    pub double: fn(Way, &Case) -> Outcome,
}

/// The numbers of sequences, queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub batch: usize,
    pub queries: usize,
    pub keys: usize,
}

impl Sizes {
    /// The sizes of self-attention.
    pub const fn square(batch: usize, length: usize) -> Self {
        Self::new(batch, length, length)
    }

    pub const fn new(batch: usize, queries: usize, keys: usize) -> Self {
        Self {
            batch,
            queries,
            keys,
        }
    }
}

/// The input and parameters of a layer.
#[derive(Clone, Debug)]
pub struct Case {
    pub sizes: Sizes,
    pub state: State,
    /// Factors of the output of each query, and so of its gradient. `[batch, query]`.
    pub factors: Option<Vec<f64>>,
}

impl Subject {
    /// Numbers for the layer that are exact in `f32`, so that it computes the same in both types.
    pub fn case(&self, sizes: Sizes) -> Case {
        let Sizes {
            batch,
            queries,
            keys,
        } = sizes;
        let mut state = (self.state)();
        state.insert("x", &[batch, queries, self.d_model]);
        if let Some(d_context) = self.d_context {
            state.insert("context", &[batch, keys, d_context]);
        }
        if let Some(d_values) = self.d_values {
            state.insert("values", &[batch, keys, d_values]);
        }
        for values in state.values.values_mut() {
            for value in &mut values.flat {
                *value = f64::from(*value as f32);
            }
        }
        Case {
            sizes,
            state,
            factors: None,
        }
    }
}

type Batched<const W: usize, E> = Tensor<(usize, usize, Const<W>), E, Cpu>;

impl Case {
    pub fn x<const M: usize, E: Dtype>(&self) -> Batched<M, E>
    where
        Cpu: Device<E>,
    {
        let shape = (self.sizes.batch, self.sizes.queries, Const);
        self.state.tensor("x", shape)
    }

    pub fn context<const C: usize, E: Dtype>(&self) -> Batched<C, E>
    where
        Cpu: Device<E>,
    {
        let shape = (self.sizes.batch, self.sizes.keys, Const);
        self.state.tensor("context", shape)
    }

    pub fn values<const V: usize, E: Dtype>(&self) -> Batched<V, E>
    where
        Cpu: Device<E>,
    {
        let shape = (self.sizes.batch, self.sizes.keys, Const);
        self.state.tensor("values", shape)
    }

    /// Multiplies the output by the factors, and differentiates.
    pub fn finish<const M: usize, E: Dtype>(
        &self,
        output: Traced<(usize, usize, Const<M>), E>,
    ) -> Backpropagated<E>
    where
        Cpu: Device<E>,
    {
        let Some(factors) = &self.factors else {
            return backpropagate(output);
        };
        let shape = *output.shape();
        let factors = factors.iter().map(|&factor| number(factor)).collect();
        let factors = Cpu::default().tensor_from_vec(factors, (shape.0, shape.1));
        backpropagate(output * factors.broadcast_like(&shape))
    }

    /// The number of valid keys of a sequence: in turn about two thirds, none, all.
    pub fn length(&self, b: usize) -> usize {
        let keys = self.sizes.keys;
        [(2 * keys).div_ceil(3), 0, keys][b % 3]
    }

    /// The number of valid keys of a query: every number from none to all occurs.
    pub fn length_for(&self, b: usize, q: usize) -> usize {
        (5 * b + 3 * q + 1) % (self.sizes.keys + 1)
    }

    /// Whether a key is marked: a third of them are not, and neither are 64 in a row.
    pub fn is_marked(&self, b: usize, k: usize) -> bool {
        !(b + k).is_multiple_of(3) && k / 64 != 1
    }

    /// The document of a token: four per sequence, one after the other. The ids are not sorted.
    pub fn document(&self, b: usize, i: usize) -> usize {
        let length = self.sizes.queries.div_ceil(4).max(2);
        [4, 0, 9, 2, 5][(i + b) / length % 5]
    }

    /// The document of a token of the context. Some queries have no partner.
    pub fn key_document(&self, b: usize, k: usize) -> usize {
        let length = self.sizes.keys.div_ceil(4).max(2);
        [9, 4, 0, 7][(k + 2 * b) / length % 4]
    }

    /// The multiplicity of a key: some are 0, and in every third sequence all are.
    pub fn counts<E: Dtype>(&self) -> Tensor<(usize, usize), E, Cpu>
    where
        Cpu: Device<E>,
    {
        self.table(self.sizes.keys, |case, b, k| {
            let count = if case.is_marked(b, k) && b % 3 != 1 {
                k % 4 + 1
            } else {
                0
            };
            number(0.5 * count as f64)
        })
    }

    pub fn lengths(&self) -> Tensor<(usize,), usize, Cpu> {
        let batch = self.sizes.batch;
        let lengths = (0..batch).map(|b| self.length(b)).collect();
        Cpu::default().tensor_from_vec(lengths, (batch,))
    }

    pub fn lengths_per_query(&self) -> Tensor<(usize, usize), usize, Cpu> {
        self.table(self.sizes.queries, Self::length_for)
    }

    pub fn marks(&self) -> Tensor<(usize, usize), bool, Cpu> {
        self.table(self.sizes.keys, Self::is_marked)
    }

    pub fn documents(&self) -> Tensor<(usize, usize), usize, Cpu> {
        self.table(self.sizes.queries, Self::document)
    }

    /// The relation of two tokens: constant in blocks of several tiles.
    pub fn relations(&self) -> Tensor<(usize, usize, usize), usize, Cpu> {
        let Sizes {
            batch,
            queries,
            keys,
        } = self.sizes;
        let places = 0..batch * queries * keys;
        let relations = places.map(|place| {
            let b = place / keys / queries;
            let q = place / keys % queries;
            let k = place % keys;
            2 * ((q / 70 + k / 40 + b) % 3) + (q + k) % 2
        });
        Cpu::default().tensor_from_vec(relations.collect(), (batch, queries, keys))
    }

    pub fn key_documents(&self) -> Tensor<(usize, usize), usize, Cpu> {
        self.table(self.sizes.keys, Self::key_document)
    }

    fn table<T: Unit>(
        &self,
        len: usize,
        cell: impl Fn(&Self, usize, usize) -> T,
    ) -> Tensor<(usize, usize), T, Cpu> {
        let batch = self.sizes.batch;
        let places = (0..batch * len).map(|place| (place / len, place % len));
        let cells = places.map(|(b, i)| cell(self, b, i)).collect();
        Cpu::default().tensor_from_vec(cells, (batch, len))
    }
}

/// Declares a layer from its keys and an optional body, as a [`Subject`]. It takes `input`, made from a traced `x`, from a
/// `context` and the `values` if they are named, and from the case.
#[macro_export]
macro_rules! subject {
    (|$x:ident, $case:ident| $input:expr, [$($spec:tt)*] $($body:tt)?) => {
        $crate::subject!(@layer $x [] $case $input, [$($spec)*] $($body)?)
    };
    (|$x:ident, $context:ident, $case:ident| $input:expr, [$($spec:tt)*] $($body:tt)?) => {
        $crate::subject!(@layer $x [$context] $case $input, [$($spec)*] $($body)?)
    };
    (|$x:ident, $context:ident, $values:ident, $case:ident| $input:expr, [$($spec:tt)*] $($body:tt)?) => {
        $crate::subject!(@layer $x [$context $values] $case $input, [$($spec)*] $($body)?)
    };
    (@layer $x:ident [$($context:ident $($values:ident)?)?] $case:ident $input:expr, $spec:tt $($body:tt)?) => {{
        use $crate::{
            compare::Outcome,
            parameters::{add_gradients, make, state},
            subject::{Case, Subject, Way},
        };
        use dfdx::prelude::*;

        $crate::subject!(@declare $spec $($body)?);

        fn run<E: attn::Element>(way: Way, $case: &Case) -> Outcome
        where
            Cpu: attn::Backend<E>,
        {
            let (mut layer, parameters) = make::<Layer<E>, E>(&$case.state);
            let queries = $case.x::<{ Layer::D_MODEL }, E>();
            let $x = queries.leaky_trace();
            $(
                let keys = $case.context::<{ Layer::D_CONTEXT }, E>();
                let $context = keys.clone();
                $(
                    let of_keys = $case.values::<{ Layer::D_VALUES }, E>();
                    let $values = of_keys.clone();
                )?
            )?
            let output = match way {
                Way::Fused => layer.forward_mut($input),
                Way::Composed => layer.composed().forward_mut($input),
            };
            let ran = $case.finish(output).input("x", &queries);
            $(
                let ran = ran.input(stringify!($context), &keys);
                $(let ran = ran.input(stringify!($values), &of_keys);)?
            )?
            add_gradients(ran, &parameters)
        }

        Subject {
            d_model: Layer::D_MODEL,
            d_context: $crate::subject!(@d_context $($context)?),
            d_values: $crate::subject!(@d_values $($($values)?)?),
            state: state::<Layer<f64>, f64>,
            single: run::<f32>,
            double: run::<f64>,
        }
    }};
    (@declare [$($spec:tt)*]) => {
        attn::attention! {
            struct Layer<$($spec)*>;
        }
    };
    (@declare [$($spec:tt)*] $body:tt) => {
        attn::attention! {
            struct Layer<$($spec)*> $body
        }
    };
    (@d_context) => {
        None
    };
    (@d_context $context:ident) => {
        Some(Layer::D_CONTEXT)
    };
    (@d_values) => {
        None
    };
    (@d_values $values:ident) => {
        Some(Layer::D_VALUES)
    };
}

/// A test for each of these specs, some with a body, which calls `$check`.
#[macro_export]
macro_rules! tests {
    ($check:expr, |$($var:ident),+| $input:expr; $($name:ident $spec:tt $({$($body:tt)*})?;)+) => {
        $crate::tests!(@each $check, [$($var),+], $input, $([$name $spec $({$($body)*})?])+);
    };
    (@each $check:expr, $vars:tt, $input:expr, $([$name:ident $spec:tt $($body:tt)?])+) => {
        $($crate::tests!(@one $check, $vars, $input, $name, $spec $($body)?);)+
    };
    (@one $check:expr, [$($var:ident),+], $input:expr, $name:ident, $spec:tt $($body:tt)?) => {
        #[test]
        fn $name() {
            ($check)(&$crate::subject!(|$($var),+| $input, $spec $($body)?));
        }
    };
}
