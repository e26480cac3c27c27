//! The message for `backward` on a tensor without a tape.

use dfdx::prelude::{Gradients, NoneTape, Rank0, Storage, Tensor};

/// A tape that records operations, as that of a traced tensor. [`NoneTape`] is none.
#[diagnostic::on_unimplemented(
    message = "`backward` needs a tape, and this tensor has none: no operation was recorded",
    label = "computed from an input that was not traced",
    note = "trace the input: `layer.forward_mut(x.traced(layer.alloc_grads()))`, or `x.leaky_trace()` where no gradients are kept; \
            of several inputs the first brings the tape"
)]
pub trait Records {}

/// A message in place of a missing method: dfdx has `backward` only for tensors with a tape. No tensor has this method, because its
/// bound never holds.
pub trait BackwardOfUntraced<E, D: Storage<E>>: Sized {
    /// The tensor's tape.
    type Tape;

    /// Never callable: see the bound.
    fn backward(self) -> Gradients<E, D>
    where
        Self::Tape: Records,
    {
        unreachable!("no type records")
    }

    /// Never callable: see the bound.
    fn try_backward(self) -> Result<Gradients<E, D>, D::Err>
    where
        Self::Tape: Records,
    {
        unreachable!("no type records")
    }
}

impl<E, D: Storage<E>> BackwardOfUntraced<E, D> for Tensor<Rank0, E, D, NoneTape> {
    type Tape = NoneTape;
}
