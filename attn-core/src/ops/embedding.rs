//! Vectors of tokens.

use dfdx::{
    shapes::{Const, HasShape, Rank2},
    tensor::{PutTape, SplitTape, Tape, Tensor, TensorFromVec},
    tensor_ops::GatherTo,
};

use super::{Append, check_shape, composed};
use crate::{
    Backend, Element, Error,
    entry::contiguous,
    fused::{Ids, Operation, known, zeros},
    kernel::{Buffer, Matrix, MatrixMut, embedding as kernel},
    unwrap,
};

/// dfdx does not lend the numbers of a table. Copying all of it is as fast as having dfdx gather the rows, one number
/// after the other, if this many times fewer are asked for.
const COPY: usize = 16;

/// Row `id` of a table for each id: `ids [..]` and `weight [V, M]` to `[.., M]`. The tape is that of the ids.
///
/// PyTorch: `torch.nn.functional.embedding(ids, weight)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{embedding, try_embedding}};
///
/// let dev = Cpu::default();
/// let weight: Tensor<Rank2<3, 2>, f32, _> = dev.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]);
/// let ids: Tensor<Rank1<2>, usize, _> = dev.tensor([2, 0]);
/// assert_eq!(embedding(ids, &weight).array(), [[4.0, 5.0], [0.0, 1.0]]);
///
/// let ids: Tensor<Rank2<1, 2>, usize, _> = dev.tensor([[1, 3]]);
/// let error = try_embedding(ids, &weight).unwrap_err();
/// assert_eq!(error.to_string(), "embedding: the id at [0, 1] is 3, but there are 3: 0 to 2");
/// ```
///
/// # Panics
/// Where [`try_embedding`] has an error.
#[track_caller]
pub fn embedding<S: Append, const V: usize, const M: usize, E, D, T>(
    ids: Tensor<S, usize, D, T>,
    weight: &Tensor<Rank2<V, M>, E, D>,
) -> Tensor<S::With<Const<M>>, E, D, T>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    unwrap(try_embedding(ids, weight))
}

/// The fallible twin of [`embedding`].
///
/// # Errors
/// [`Error::OutOfRange`] if an id has no row; [`Error::TooLarge`] if the sizes of the result do not fit the memory;
/// [`Error::Device`] if dfdx fails.
pub fn try_embedding<S: Append, const V: usize, const M: usize, E, D, T>(
    ids: Tensor<S, usize, D, T>,
    weight: &Tensor<Rank2<V, M>, E, D>,
) -> Result<Tensor<S::With<Const<M>>, E, D, T>, Error<D::Err>>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    embedding_in(D::FUSED, ids, weight)
}

/// [`try_embedding`] in its fused or its composed form.
pub(crate) fn embedding_in<S: Append, const V: usize, const M: usize, E, D, T>(
    fused: bool,
    ids: Tensor<S, usize, D, T>,
    weight: &Tensor<Rank2<V, M>, E, D>,
) -> Result<Tensor<S::With<Const<M>>, E, D, T>, Error<D::Err>>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let shape = ids.shape().append(Const::<M>);
    check_shape("embedding", &shape)?;
    let (ids, tape) = ids.split_tape();
    let numbers = Ids::read(&ids);
    numbers.check("embedding", "id", V, None)?;
    if !fused {
        return Ok(composed::embedding(ids.put_tape(tape), weight)?);
    }
    let mut operation = Operation::default();
    let weight = operation.input(contiguous(weight.clone().put_tape(tape))?);
    let d_weight = operation.place(&weight);
    let (device, ids) = (weight.device().clone(), numbers.values);
    let rows = rows(&ids, weight)?;
    Ok(
        operation.finish(&device, rows, shape, move |d_y, gradients| {
            let d_y = Matrix::new(d_y, ids.len(), M);
            let d_weight = MatrixMut::new(gradients.of(d_weight), V, M);
            known(kernel::backward(&ids, d_y, d_weight));
        })?,
    )
}

/// The rows of a table, one after the other.
fn rows<const V: usize, const M: usize, E: Element, D: Backend<E>>(
    ids: &[usize],
    table: Tensor<Rank2<V, M>, E, D>,
) -> Result<Vec<E>, D::Err> {
    let mut rows = zeros(ids.len() * M);
    if ids.is_empty() || V / COPY <= ids.len() {
        let mut numbers = Buffer::stale(V * M);
        table.copy_into(&mut numbers);
        let to = MatrixMut::new(&mut rows, ids.len(), M);
        known(kernel::forward(ids, Matrix::new(&numbers, V, M), to));
        return Ok(rows);
    }
    let ids =
        TensorFromVec::<usize>::try_tensor_from_vec(table.device(), ids.to_vec(), (ids.len(),))?;
    contiguous(table.try_gather(ids)?)?.copy_into(&mut rows);
    Ok(rows)
}
