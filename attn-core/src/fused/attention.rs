//! Attention with an array for `lse`, the number of every query that the backward pass reads again, and with results beside the output.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{PutTape, Tape, Tensor},
};

use super::{Array, GradientRefs, Gradients as TapeGradients, Operation, Output, zeros};
use crate::kernel::attention::{
    Attention, Gradients, Heads, OutputGradients, Outputs, Sizes, WeightGradients,
};
use crate::kernel::{Kernels, Matrix, MatrixMut};
use crate::{Backend, Element, composed::reshape};

/// The results of an attention beside its output, to write. What is `None` is not wanted.
#[derive(Debug)]
pub struct Beside<'a, E> {
    /// The weights, `[batch, heads, query, key]`: [`Outputs::weights`].
    pub weights: Option<&'a mut [E]>,
    /// `[batch, heads, query]`
    pub lse: Option<&'a mut [E]>,
}

impl<E> Default for Beside<'_, E> {
    fn default() -> Self {
        Self {
            weights: None,
            lse: None,
        }
    }
}

/// The gradients of the results beside the output, of those that were used.
#[derive(Clone, Copy, Debug)]
pub struct BesideGradients<'a, E> {
    /// The weights, and their gradient.
    pub weights: Option<WeightGradients<'a, E>>,
    /// `[batch, heads, query]`
    pub lse: Option<&'a [E]>,
}

impl<E> Default for BesideGradients<'_, E> {
    fn default() -> Self {
        Self {
            weights: None,
            lse: None,
        }
    }
}

impl<E: Kernels> Attention<'_, E> {
    /// [`forward`](Self::forward), with the results beside the output. Returns the `lse` of all queries, `[batch heads, query]`, for the
    /// derivative.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    pub fn forward_with_lse<'a>(
        &self,
        q: impl Into<Heads<Matrix<'a, E>>>,
        k: impl Into<Heads<Matrix<'a, E>>>,
        v: impl Into<Heads<Matrix<'a, E>>>,
        out: impl Into<Heads<MatrixMut<'a, E>>>,
        beside: Beside<'a, E>,
    ) -> Array<E>
    where
        E: 'a,
    {
        let sizes = self.sizes;
        let mut lse = Array::uninit(sizes.batch * sizes.heads, [sizes.query]);
        let outputs = Outputs {
            out: out.into(),
            weights: beside.weights,
        };
        self.forward(q, k, v, outputs, lse.as_mut_slice());
        if let Some(result) = beside.lse {
            result.copy_from_slice(lse.as_slice());
        }
        lse
    }

    /// [`backward`](Self::backward). It frees `lse`, which nothing reads after it.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    #[allow(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "the tensors of the forward pass, and two more; the memory of `lse` goes back here"
    )]
    pub fn backward_with_lse<'a>(
        &self,
        q: impl Into<Heads<Matrix<'a, E>>>,
        k: impl Into<Heads<Matrix<'a, E>>>,
        v: impl Into<Heads<Matrix<'a, E>>>,
        out: impl Into<Heads<Matrix<'a, E>>>,
        lse: Array<E>,
        d_out: impl Into<Heads<Matrix<'a, E>>>,
        d_beside: BesideGradients<'a, E>,
        d: Gradients<'_, E>,
    ) where
        E: 'a,
    {
        let d_outputs = OutputGradients {
            out: d_out.into(),
            lse: d_beside.lse,
            weights: d_beside.weights,
        };
        self.backward(q, k, v, out, lse.as_slice(), d_outputs, d);
    }
}

/// Memory for the results of an attention beside its output, for tensors to own.
pub struct BesideArrays<E> {
    weights: Option<Vec<E>>,
    lse: Option<Vec<E>>,
}

impl<E: Element> BesideArrays<E> {
    /// Memory for what is wanted: the weights, and `lse`.
    pub fn of([weights, lse]: [bool; 2], sizes: Sizes) -> Self {
        let rows = sizes.batch * sizes.heads * sizes.query;
        Self {
            weights: weights.then(|| zeros(rows * sizes.key)),
            lse: lse.then(|| zeros(rows)),
        }
    }

    /// The same, to write.
    pub fn view_mut(&mut self) -> Beside<'_, E> {
        Beside {
            weights: self.weights.as_deref_mut(),
            lse: self.lse.as_deref_mut(),
        }
    }
}

/// The results of an attention on the tape of the output: the output, the weights, the `lse`.
type Finished<S, W, L, E, D, T> = (
    Tensor<S, E, D, T>,
    Option<Tensor<W, E, D>>,
    Option<Tensor<L, E, D, T>>,
);

impl<E: Element, D: Backend<E>, T: Tape<E, D>> Operation<E, D, T> {
    /// [`finish_matrix`](Self::finish_matrix) for an attention with results beside its output. The output has the tape.
    ///
    /// # Errors
    /// If a tensor cannot be created.
    pub fn finish_attention<S: Shape, W: Shape, L: Shape>(
        self,
        device: &D,
        (output, shape): (Output<E>, S),
        beside: BesideArrays<E>,
        (of_weights, of_lse): (W, L),
        backward: impl FnOnce(Matrix<'_, E>, BesideGradients<'_, E>, &mut TapeGradients<E>) + 'static,
    ) -> Result<Finished<S, W, L, E, D, T>, D::Err> {
        if beside.weights.is_none() && beside.lse.is_none() {
            let output = self.finish_matrix(device, output, shape, |d_output, gradients| {
                backward(d_output, BesideGradients::default(), gradients);
            })?;
            return Ok((output, None, None));
        }
        let [rows, width] = output.extents();
        let output = output.into_tensor(device, shape)?;
        let mut results = GradientRefs::default();
        results.add(&output);
        let weights = tensor(device, beside.weights, of_weights, &mut results)?;
        let lse = tensor(device, beside.lse, of_lse, &mut results)?;
        // The result is shared. Its numbers are read only where it has a gradient.
        let saved = match &weights {
            Some(weights) if T::OWNS_TAPE => {
                let len = weights.shape().num_elements();
                Some(reshape(weights.clone(), (len,))?)
            }
            _ => None,
        };
        let backward = move |[d_output, d_weights, lse]: [Option<&[E]>; 3],
                             gradients: &mut TapeGradients<E>| {
            let weights = saved.zip(d_weights).map(|(of, d)| {
                let mut numbers = Array::uninit(d.len(), [1]);
                D::read(vec![(&of, numbers.as_mut_slice())]);
                (numbers, d)
            });
            let weights = weights.as_ref().map(|(weights, d)| WeightGradients {
                weights: weights.as_slice(),
                d,
            });
            let none = Array::zeros(d_output.map_or(rows, |_| 0), [width]);
            let d_output = d_output.unwrap_or(none.as_slice());
            let d_output = Matrix::new(d_output, rows, width);
            backward(d_output, BesideGradients { weights, lse }, gradients);
        };
        let tape = self.record_given(device, results, backward);
        let lse = lse.map(|lse| lse.put_tape(T::default()));
        Ok((output.put_tape(tape), weights, lse))
    }
}

/// The tensor of a result, if it is wanted. Its gradient is empty otherwise.
fn tensor<S: Shape, E: Element, D: Backend<E>>(
    device: &D,
    numbers: Option<Vec<E>>,
    shape: S,
    results: &mut GradientRefs<E, D>,
) -> Result<Option<Tensor<S, E, D>>, D::Err> {
    let Some(numbers) = numbers else {
        results.add(&device.try_tensor_from_vec(Vec::new(), (0,))?);
        return Ok(None);
    };
    let result = device.try_tensor_from_vec(numbers, shape)?;
    results.add(&result);
    Ok(Some(result))
}
