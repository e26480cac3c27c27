//! The tapes of several results.

use std::{cell::Cell, rc::Rc};

use dfdx::{
    shapes::Shape,
    tensor::{PutTape, SplitTape, Storage, Tape, Tensor},
};

use crate::entry::Attended;

/// A tape for each of the `N` results of a model. The first one has the `history`, the others are empty. dfdx merges the tapes when
/// results are added.
///
/// A backward pass from a later result alone would omit the history, and with it all gradients of the model. So the tape of each later
/// result has an operation that checks that the first tape is in the same pass. Operations run in reverse order: the first tape sets
/// a flag, the others check it, the first tape clears it.
///
/// # Panics
/// In a backward pass with the tape of a later result but without that of the first one.
///
/// ```
/// use attn::{__private::runtime::model::tapes_of_results, dfdx::prelude::*};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<2>, f32, _> = dev.tensor([1.0, 2.0]);
/// let (y, history) = x.leaky_trace().square().split_tape();
/// let [first, second] = tapes_of_results::<f32, Cpu, _, 2>("Net", history);
///
/// let (a, b) = (y.clone().put_tape(first), y.put_tape(second));
/// let gradients = (b.sum() + a.sum()).backward();
/// assert_eq!(gradients.get(&x).array(), [4.0, 8.0]);
/// ```
pub fn tapes_of_results<E, D: Storage<E>, T: Tape<E, D>, const N: usize>(
    model: &'static str,
    mut history: T,
) -> [T; N] {
    let is_open = Rc::new(Cell::new(false));
    let close = Rc::clone(&is_open);
    history.add_backward_op(move |_| {
        close.set(false);
        Ok(())
    });
    let mut tapes: [T; N] = std::array::from_fn(|_| T::default());
    for (index, tape) in tapes.iter_mut().enumerate().skip(1) {
        let is_open = Rc::clone(&is_open);
        tape.add_backward_op(move |_| {
            let result = index + 1;
            assert!(
                is_open.get(),
                "`{model}`: a backward pass through result {result} without the first one, which has the history of all results; \
                 add what is computed of both before `backward()`: `(loss + 0.0 * first.sum()).backward()`, if need be"
            );
            Ok(())
        });
    }
    history.add_backward_op(move |_| {
        is_open.set(true);
        Ok(())
    });
    if let Some(first) = tapes.first_mut() {
        *first = history;
    }
    tapes
}

/// The results of an attention, each with a tape: [`tapes_of_results`]. `lse` may have a tape of its own.
#[allow(clippy::type_complexity, reason = "three tensors")]
pub fn attended<S: Shape, W: Shape, L: Shape, E: Clone, D: Storage<E>, T: Tape<E, D>>(
    layer: &'static str,
    output: Tensor<S, E, D, T>,
    weights: Option<Tensor<W, E, D>>,
    lse: Option<Tensor<L, E, D, T>>,
) -> Attended<Tensor<S, E, D, T>, Tensor<W, E, D, T>, Tensor<L, E, D, T>> {
    if weights.is_none() && lse.is_none() {
        return Attended {
            output,
            weights: None,
            lse: None,
        };
    }
    let (output, mut history) = output.split_tape();
    let lse = lse.map(|lse| {
        let (lse, tape) = lse.split_tape();
        history = std::mem::take(&mut history).merge(tape);
        lse
    });
    let [of_output, of_weights, of_lse] = tapes_of_results(layer, history);
    Attended {
        output: output.put_tape(of_output),
        weights: weights.map(|weights| weights.put_tape(of_weights)),
        lse: lse.map(|lse| lse.put_tape(of_lse)),
    }
}
