//! Attention variants of papers, each declared in a few lines with score functions and masks, and compared with hand-written
//! dense tensors: the output and every gradient, in both forms, in `f32` and in `f64`.

#[macro_use(self_attention)]
extern crate support;

mod data;
mod masks;
mod scores;

use dfdx::prelude::*;
use support::reference::{Heads, Mask, number};

/// A number for every head, query and key, added to the scores.
fn biased<E: Dtype>(scores: Heads<E>, bias: impl Fn(usize, usize, usize) -> f64) -> Heads<E>
where
    Cpu: Device<E>,
{
    let shape = *scores.shape();
    scores + numbers(shape, bias)
}

/// A number for every head, query and key, as a tensor.
fn numbers<E: Dtype>(
    shape: (usize, usize, usize, usize),
    number_at: impl Fn(usize, usize, usize) -> f64,
) -> Tensor<(usize, usize, usize, usize), E, Cpu>
where
    Cpu: Device<E>,
{
    let (_, heads, queries, keys) = shape;
    let mut values = Vec::with_capacity(heads * queries * keys);
    for h in 0..heads {
        for q in 0..queries {
            values.extend((0..keys).map(|k| number::<E>(number_at(h, q, k))));
        }
    }
    Cpu::default()
        .tensor_from_vec(values, (heads, queries, keys))
        .broadcast_like::<_, Axis<0>>(&shape)
}

/// A mask by pairs.
fn mask(x: &support::reference::Input<impl Dtype>, attends: impl Fn(usize, usize) -> bool) -> Mask {
    let (batch, len, _) = *x.shape();
    let pairs = (0..len).flat_map(|q| (0..len).map(move |k| (q, k)));
    let cells = pairs.map(|(q, k)| attends(q, k)).collect();
    let matrix = Cpu::default().tensor_from_vec(cells, (len, len));
    support::reference::masks::for_all(batch, &matrix)
}
