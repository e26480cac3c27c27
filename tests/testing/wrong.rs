//! An operation with a mistake in its derivative.

use dfdx::prelude::*;

pub(crate) type Plain<S> = Tensor<S, f64, Cpu>;
pub(crate) type Traced<S> = Tensor<S, f64, Cpu, OwnedTape<f64, Cpu>>;

/// A gain for each column, `x * weight`. The gradient of the weight is multiplied by `mistake`, which has the index of the element.
pub(crate) fn gain<const B: usize, const N: usize>(
    x: Traced<Rank2<B, N>>,
    weight: &Plain<Rank1<N>>,
    mistake: impl Fn(usize) -> f64 + 'static,
) -> Traced<Rank2<B, N>> {
    let (x, mut tape) = x.split_tape();
    let y = x.clone() * weight.clone().broadcast();
    let (of_x, of_weight, of_y) = (x.ghost(), weight.ghost(), y.ghost());
    let weight = weight.clone();
    tape.add_backward_op(move |gradients| {
        let upstream = gradients.get_or_alloc_mut(&of_y)?.clone();
        let (x, weight) = (x.as_vec(), weight.as_vec());
        let dx = gradients.get_or_alloc_mut(&of_x)?;
        for (i, dy) in upstream.iter().enumerate() {
            dx[i] += dy * weight[i % N];
        }
        let dw = gradients.get_or_alloc_mut(&of_weight)?;
        for (i, dy) in upstream.iter().enumerate() {
            dw[i % N] += dy * x[i] * mistake(i % N);
        }
        Ok(())
    });
    y.put_tape(tape)
}
