//! Layers other than attention, their operations, and the optimizer.
//!
//! An operation is compared with dfdx operations, including gradients, and with loops over plain numbers for properties that
//! dfdx's operations do not have.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

pub(crate) mod adamw;
pub(crate) mod positions;

mod accumulation;
mod activations;
mod arithmetic;
mod clip;
mod concat;
mod cross_entropy;
mod decay;
mod dropout;
mod embedding;
mod expand;
mod feed_forward;
mod l2_norm;
mod linear;
mod max_pool;
mod mean_pool;
mod models;
mod norms;
mod pass;
mod permute;
mod reduce;
mod slice;
mod softmax;
mod stack;

use attn::{Backend, Element};
use dfdx::prelude::*;
use std::fmt::Display;
use support::compare::{self, Backpropagated, Outcome, assert_same, backpropagate};
use support::reference::{Traced, number, parameters::scattered};

/// Sizes of the axes before the last: one, and odd ones.
const SIZES: [(usize, usize); 5] = [(1, 1), (2, 5), (3, 7), (1, 17), (5, 1)];

/// The difference of two ways to compute something: sums of up to 40 terms of order 1, on three levels, which are rounded in
/// another order: √120 ε / 2 = 6 ε, and ten times that.
fn tolerance<E: Element>() -> f64 {
    60.0 * E::epsilon().into()
}

/// A tensor of numbers between -1 and 1 that depend on the name.
fn tensor<S: Shape, E: Element>(name: &str, shape: S) -> Tensor<S, E, Cpu>
where
    Cpu: Device<E>,
{
    let numbers = scattered(name, shape.num_elements());
    Cpu::default().tensor_from_vec(numbers.into_iter().map(number).collect(), shape)
}

/// Runs a test for both element types.
macro_rules! for_both {
    ($test:ident $(, $argument:expr)*) => {
        $test::<f32>($($argument),*);
        $test::<f64>($($argument),*);
    };
}
use for_both;

/// Checks that two ways to compute something have the same result, and the same gradients, which `read` collects.
#[track_caller]
fn agree<S: Shape, E: Element>(
    what: impl Display,
    [found, expected]: [Traced<S, E>; 2],
    read: impl Fn(Backpropagated<E>) -> Outcome,
    times: f64,
) where
    Cpu: Backend<E>,
{
    let [found, expected] = [found, expected].map(|y| read(backpropagate(y)));
    assert_same(what, &found, &expected, times * tolerance::<E>());
}

/// Checks that two ways to compute something from tensors have the same result and the same gradients.
macro_rules! assert_agree {
    ($what:expr, $inputs:tt, $found:expr, $expected:expr) => {
        assert_agree!($what, $inputs, $found, $expected, 1.0)
    };
    ($what:expr, [$($input:ident),*], $found:expr, $expected:expr, $times:expr) => {{
        let read = |ran: Backpropagated<_>| {
            ran$(.input(stringify!($input), &$input))*.parameters(&())
        };
        agree($what, [$found, $expected], read, $times);
    }};
}
use assert_agree;

/// The number of operations on a tape.
fn operations<S: Shape, E: Element>(y: Traced<S, E>) -> usize
where
    Cpu: Backend<E>,
{
    let (_, tape) = y.split_tape();
    let tape = format!("{tape:?}");
    let count = tape.split("num_operations: ").nth(1);
    let count = count.and_then(|rest| rest.split(',').next());
    let count = count.expect("dfdx says how many");
    count.parse().expect("a number")
}

/// The gradients after a backward pass from zero gradients: the test is that they exist.
fn backward_of_nothing<S: Shape>(y: Traced<S, f64>) -> Gradients<f64, Cpu> {
    let (_, tape) = y.split_tape();
    let loss: Tensor<Rank0, f64, Cpu> = Cpu::default().zeros();
    loss.put_tape(tape).backward()
}
