//! Embeddings.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::{Const, HasShape, Rank2},
    tensor::{AutoDevice, PutTape, SplitTape, Storage, Tape, Tensor, TensorFromVec},
    tensor_ops::{Device, GatherTo},
};

use crate::{
    Backend, Element, Error,
    composed::contiguous,
    data::{Ids, known},
    fused::{Operation, zeros},
    init,
    kernel::{Buffer, Matrix, MatrixMut, embedding as kernel},
    model::{Pass, weighted},
    ops::{Append, check_shape},
    unwrap,
};

/// dfdx gives no access to the numbers of a table. If the table is at most this many times as large as the result, it is copied as a
/// whole: that is as fast as dfdx's gather, which copies element by element.
const COPY: usize = 16;

/// Looks up the row of each id: `ids [..]` and `weight [V, M]` to `[.., M]`. The result has the tape of the ids.
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
/// If [`try_embedding`] returns an error.
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

/// The fallible version of [`embedding`].
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
    embedding_with_form(D::FUSED, ids, weight)
}

/// [`try_embedding`] in the fused or the composed form.
pub(crate) fn embedding_with_form<S: Append, const V: usize, const M: usize, E, D, T>(
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
    let device = weight.device().clone();
    let ids = numbers.values;
    let rows = rows(&ids, weight)?;
    Ok(
        operation.finish(&device, rows, shape, move |d_y, gradients| {
            let d_y = Matrix::new(d_y, ids.len(), M);
            let d_weight = MatrixMut::new(gradients.of(d_weight), V, M);
            known(kernel::backward(&ids, d_y, d_weight));
        })?,
    )
}

/// The rows with these ids, concatenated.
fn rows<const V: usize, const M: usize, E: Element, D: Backend<E>>(
    ids: &[usize],
    table: Tensor<Rank2<V, M>, E, D>,
) -> Result<Vec<E>, D::Err> {
    let mut rows = zeros(ids.len() * M);
    if ids.is_empty() || V / COPY <= ids.len() {
        let mut numbers = Buffer::uninit(V * M);
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

/// A learned vector of `M` numbers for each of `V` tokens. One operation on the tape.
///
/// PyTorch: `torch.nn.Embedding(V, M)`, with its name and initial values. Its input is a tensor of token ids, which may have a tape. For
/// an output layer that shares the table (Press and Wolf, "Using the output embedding to improve language models", 2016), call
/// [`ops::linear`](crate::ops::linear) with its `weight`.
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | input | `[..]` of `usize`, of up to three axes | |
/// | output | `[.., M]` | |
/// | `weight` | `[V, M]` | normal with standard deviation 1 |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Embedding};
///
/// let dev = Cpu::default();
/// let embedding = dev.build_module::<Embedding<65, 8>, f32>();
/// let ids: Tensor<(usize, usize), usize, _> = dev.tensor_from_vec(vec![1, 2, 3, 70], (2, 2));
/// let error = embedding.try_forward(ids).unwrap_err();
/// assert_eq!(error.to_string(), "embedding: the id at [1, 1] is 70, but there are 65: 0 to 64");
///
/// let ids: Tensor<Rank1<3>, usize, _> = dev.tensor([64, 0, 64]);
/// let y: Tensor<Rank2<3, 8>, f32, _> = embedding.forward(ids);
/// ```
#[doc(alias = "wte")]
#[derive(Clone, Debug)]
pub struct Embedding<const V: usize, const M: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// A vector per token.
    pub weight: Tensor<Rank2<V, M>, E, D>,
}

impl<const V: usize, const M: usize, E: Dtype, D: Storage<E>> Embedding<V, M, E, D> {
    /// The number of parameters.
    pub const PARAMS: usize = V * M;
}

impl<const V: usize, const M: usize, E: Element, D: Backend<E>> Embedding<V, M, E, D> {
    /// The vectors of tokens, `[..]` to `[.., M]`.
    ///
    /// # Panics
    /// If [`try_forward`](Self::try_forward) returns an error.
    #[track_caller]
    pub fn forward<S: Append, T: Tape<E, D>>(
        &self,
        ids: Tensor<S, usize, D, T>,
    ) -> Tensor<S::With<Const<M>>, E, D, T> {
        unwrap(self.try_forward(ids))
    }

    /// The vectors of tokens, `[..]` to `[.., M]`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if an id is not below `V`; [`Error::TooLarge`] if the sizes do not fit the memory;
    /// [`Error::Device`] if dfdx fails.
    pub fn try_forward<S: Append, T: Tape<E, D>>(
        &self,
        ids: Tensor<S, usize, D, T>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D, T>, Error<D::Err>> {
        try_embedding(ids, &self.weight)
    }
}

/// For a tuple of layers, whose error is dfdx's: an id that is too large panics with the message of the error.
impl<const V: usize, const M: usize, S, E, D, T> Module<Tensor<S, usize, D, T>>
    for Embedding<V, M, E, D>
where
    S: Append,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S::With<Const<M>>, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, ids: Tensor<S, usize, D, T>) -> Result<Self::Output, D::Err> {
        Self::try_forward(self, ids).map_err(Error::into_device)
    }
}

impl<const V: usize, const M: usize, E: Dtype, D: Storage<E>> NonMutableModule
    for Embedding<V, M, E, D>
{
}

impl<const V: usize, const M: usize, E: Element, D: Device<E>> TensorCollection<E, D>
    for Embedding<V, M, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = Embedding<V, M, E2, D2>;

    fn iter_tensors<W: ModuleVisitor<Self, E, D>>(
        visitor: &mut W,
    ) -> Result<Option<Self::To<W::E2, W::D2>>, W::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::weight(t, |t| init::normal(t, 1.0))),
            ),
            |weight| Embedding { weight },
        )
    }
}

/// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
impl<const V: usize, const M: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>>
    BuildOnDevice<D, E> for Embedding<V, M, E0, D0>
{
    type Built = Embedding<V, M, E, D>;
}

weighted! {
    [const V: usize, const M: usize] Embedding<V, M, E, D>:
        slices::Table<E>, |layer, operation| slices::Table(operation.parameter(&layer.weight)?);
}

impl<T> Pass<'_, T> {
    /// The vectors of tokens, `[..]` to `[.., M]`: [`embedding`].
    ///
    /// # Errors
    /// The errors of [`try_embedding`].
    pub fn embedding<S: Append, const V: usize, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        ids: &Tensor<S, usize, D>,
        layer: &Embedding<V, M, E, D>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(ids, |fused, ids| {
            embedding_with_form(fused, ids, &layer.weight)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use smallvec::SmallVec;

    use crate::{
        Element,
        data::known,
        fused::{
            AffineMap, GradTarget, Gradients, Operand, VisitSlot, VisitWeights, WantsGradient,
            WeightVisitor,
        },
        kernel::{Matrix, MatrixMut, embedding, linear, quantized},
        simd::WriteMode,
    };

    /// The table of an embedding, `[count, width]`. It may also be the weight of a linear layer with `count` outputs.
    pub struct Table<E: Element>(pub Operand<E>);

    impl<E: Element> WantsGradient for Table<E> {
        fn slots(&self, visit: VisitSlot<'_>) {
            self.0.slots(visit);
        }
    }

    impl<E: Element> VisitWeights<E> for Table<E> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            self.0.visit_matrix(visit);
        }
    }

    impl<E: Element> Table<E> {
        /// Copies row `ids[i]` to row `i` of the result.
        ///
        /// # Panics
        /// If an id has no row. Callers check the ids before.
        pub fn forward(&self, ids: &[usize], to: MatrixMut<'_, E>) {
            self.behind(0).forward(ids, to);
        }

        /// The derivative of [`forward`](Self::forward).
        pub fn backward(&self, ids: &[usize], d_y: Matrix<'_, E>, gradients: &mut Gradients<E>) {
            if self.is_wanted() {
                let to = self.0.gradient_matrix(gradients);
                known(embedding::backward(ids, d_y, to));
            }
        }

        /// Copies the first `len` rows to each of the sequences of the result.
        ///
        /// # Panics
        /// If there are fewer. Callers check the length before.
        pub fn forward_positions(&self, len: usize, to: MatrixMut<'_, E>) {
            self.behind(0).forward_positions(len, to);
        }

        /// The derivative of [`forward_positions`](Self::forward_positions).
        pub fn backward_positions(
            &self,
            len: usize,
            d_y: Matrix<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            self.behind(0).backward_positions(len, d_y, gradients);
        }

        /// The rows from this one on.
        pub fn behind(&self, offset: usize) -> RowsBehind<'_, E> {
            RowsBehind {
                table: self,
                offset,
            }
        }

        /// The table as the map `y = x Wᵀ`.
        pub fn only(&self) -> AffineMap<'_, E> {
            AffineMap {
                weight: self.0.matrix(),
                bias: None,
                d_weight: self.0.slot(),
                d_bias: None,
                dtype: self.0.dtype(),
            }
        }

        /// `y = x Wᵀ`
        ///
        /// Press and Wolf, "Using the output embedding to improve language models" (2016).
        pub fn project(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) {
            match self.0.quantized() {
                None => linear::forward(x, self.0.matrix(), None, y, self.0.dtype()),
                Some(table) => quantized::forward(x, table.into(), None, [y].into_iter().collect()),
            }
        }

        /// The derivative of [`project`](Self::project).
        pub fn project_backward(
            &self,
            x: Matrix<'_, E>,
            d_y: Matrix<'_, E>,
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            if self.is_wanted() {
                let to = self.0.gradient_matrix(gradients);
                let dtype = self.0.dtype();
                linear::parameter_gradients(d_y, x, WriteMode::Add, Some(to), None, dtype);
            }
            if let Some((numbers, into)) = d_x.numbers_mut(gradients) {
                let to = MatrixMut::new(numbers, x.rows(), x.cols());
                linear::input_gradient(d_y, self.0.matrix(), into, to, self.0.dtype());
            }
        }
    }

    /// The rows of a [`Table`] from one on: they are counted from there.
    pub struct RowsBehind<'t, E: Element> {
        table: &'t Table<E>,
        offset: usize,
    }

    impl<E: Element> RowsBehind<'_, E> {
        /// [`Table::forward`]
        ///
        /// # Panics
        /// If an id has no row. Callers check the ids before.
        pub fn forward(&self, ids: &[usize], to: MatrixMut<'_, E>) {
            let Some(quantized) = self.table.0.quantized() else {
                let table = self.table.0.matrix();
                let rows = table.some_rows(self.offset..table.rows());
                return known(embedding::forward(ids, rows, to));
            };
            let rows: SmallVec<[usize; 16]> = ids.iter().map(|id| self.offset + id).collect();
            quantized::copy_rows(quantized, &rows, to);
        }

        /// [`Table::forward_positions`]
        ///
        /// # Panics
        /// If there are fewer rows. Callers check the length before.
        pub fn forward_positions(&self, len: usize, to: MatrixMut<'_, E>) {
            self.forward(&positions(len, to.rows()), to);
        }

        /// [`Table::backward_positions`]
        pub fn backward_positions(
            &self,
            len: usize,
            d_y: Matrix<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            if self.table.is_wanted() {
                let to = self.table.0.gradient_matrix(gradients);
                let (_, to) = to.split_rows(self.offset);
                known(embedding::backward(&positions(len, d_y.rows()), d_y, to));
            }
        }
    }

    /// The positions of the tokens of sequences, one sequence after the other.
    fn positions(len: usize, tokens: usize) -> Vec<usize> {
        (0..tokens).map(|token| token % len).collect()
    }
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{Const, HasShape, Rank2},
        tensor::{PutTape, SplitTape, Tape, Tensor, TensorFromVec},
        tensor_ops::{Device, GatherTo},
    };

    use crate::{
        Element,
        composed::{is_empty, reshape, zeros_after},
        ops::Append,
    };

    /// [`embedding`](super::embedding)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn embedding<S: Append, const V: usize, const M: usize, E, D, T>(
        ids: Tensor<S, usize, D, T>,
        weight: &Tensor<Rank2<V, M>, E, D>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D, T>, D::Err>
    where
        E: Element,
        D: Device<E>,
        T: Tape<E, D>,
    {
        let shape = ids.shape().append(Const::<M>);
        let (ids, tape) = ids.split_tape();
        let weight = weight.clone().put_tape(tape);
        if is_empty(&shape) {
            return zeros_after(weight, shape);
        }
        let count = (ids.shape().num_elements(),);
        let ids =
            TensorFromVec::<usize>::try_tensor_from_vec(weight.device(), ids.as_vec(), count)?;
        reshape(weight.try_gather(ids)?, shape)
    }
}
