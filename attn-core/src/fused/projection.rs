//! The parameters of projections that read the same input, packed for one product.

use dfdx::{
    shapes::{Rank1, Rank2},
    tensor::{Tape, Tensor},
};
use smallvec::SmallVec;

use super::arena::{Numbers, Unread};
use super::{
    GradTarget, Gradients, Operation, Slot, VisitSlot, VisitWeights, WantsGradient, WeightVisitor,
};
use crate::{
    Backend, Element,
    kernel::{
        Buffer, Dtype, Matrix, MatrixMut, linear, linear_parts,
        packed_linear::PackedWeights,
        quantized::{self, QuantizedMatrix},
    },
    simd::{Initial, WriteMode},
};

/// `y = x Wᵀ + b` with the stacked weights and biases of several projections: `W` is `[Σ outputs, input]`.
///
/// This is one product with `[.., 3 * d_model]` columns instead of three. PyTorch: `in_proj_weight` of
/// `torch.nn.MultiheadAttention`.
pub struct Projection<E: Element> {
    input: usize,
    weight: Numbers<E>,
    bias: Option<Numbers<E>>,
    parts: Vec<Part>,
}

struct Part {
    outputs: usize,
    weight: Slot,
    bias: Option<Slot>,
}

/// `y = x Wᵀ + b`, and the slots of the gradients of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct AffineMap<'a, E> {
    /// `[out, in]`
    pub weight: Matrix<'a, E>,
    /// `[out]`
    pub bias: Option<&'a [E]>,
    /// The slot of the gradient of the weight.
    pub d_weight: Slot,
    /// The slot of the gradient of the bias.
    pub d_bias: Option<Slot>,
    /// The dtype of the operands of its products.
    pub dtype: Dtype,
}

/// A list of projections whose parameters are to be packed.
pub struct ProjectionBuilder<E: Element, D: Backend<E>> {
    input: usize,
    parts: Vec<UnreadPart<E, D>>,
}

/// A projection whose parameters have no place yet.
struct UnreadPart<E: Element, D: Backend<E>> {
    outputs: usize,
    weight: Unread<E, D>,
    bias: Option<Unread<E, D>>,
}

impl<E: Element, D: Backend<E>> ProjectionBuilder<E, D> {
    /// An empty list, for an input of this width.
    pub fn new(input: usize) -> Self {
        Self {
            input,
            parts: Vec::new(),
        }
    }

    /// Adds a projection.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    pub fn push<const I: usize, const O: usize, T: Tape<E, D>>(
        mut self,
        operation: &mut Operation<E, D, T>,
        weight: &Tensor<Rank2<O, I>, E, D>,
        bias: Option<&Tensor<Rank1<O>, E, D>>,
    ) -> Result<Self, D::Err> {
        let weight = operation.unread(weight)?;
        let bias = bias.map(|bias| operation.unread(bias)).transpose()?;
        self.parts.push(UnreadPart {
            outputs: O,
            weight,
            bias,
        });
        Ok(self)
    }

    /// Reads the parameters of all projections: the weights side by side, and the biases.
    pub fn read<T>(self, operation: &mut Operation<E, D, T>) -> Projection<E> {
        let Self { input, parts } = self;
        let has_bias = parts.iter().any(|part| part.bias.is_some());
        let mut weights = Vec::with_capacity(parts.len());
        let mut biases = Vec::with_capacity(parts.len());
        let mut read = Vec::with_capacity(parts.len());
        for part in parts {
            let UnreadPart {
                outputs,
                weight,
                bias,
            } = part;
            read.push(Part {
                outputs,
                weight: weight.slot,
                bias: bias.as_ref().map(|bias| bias.slot),
            });
            weights.push((outputs * input, Some(weight)));
            biases.push((outputs, bias));
        }
        let (weight, bias) = operation.reserve(|arena| {
            let weight = arena.reserve(weights);
            (weight, has_bias.then(|| arena.reserve(biases)))
        });
        Projection {
            input,
            weight,
            bias,
            parts: read,
        }
    }
}

/// A module that a [`Projection`] reads, on the tape `T`.
pub trait ProjectionLayer<E: Element, D: Backend<E>, T> {
    /// The width of its input.
    fn input(&self) -> usize;

    /// Adds its projections to the list.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    fn push_to(
        &self,
        stack: ProjectionBuilder<E, D>,
        operation: &mut Operation<E, D, T>,
    ) -> Result<ProjectionBuilder<E, D>, D::Err>;
}

impl<E: Element, D: Backend<E>, T> Operation<E, D, T> {
    /// The parameters of projections that read the same input.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    pub fn projection(
        &mut self,
        modules: &[&dyn ProjectionLayer<E, D, T>],
    ) -> Result<Projection<E>, D::Err> {
        let input = modules.first().map_or(0, |module| module.input());
        let stack = modules
            .iter()
            .try_fold(ProjectionBuilder::new(input), |stack, module| {
                module.push_to(stack, self)
            })?;
        Ok(stack.read(self))
    }
}

impl<E: Element> WantsGradient for Projection<E> {
    fn slots(&self, visit: VisitSlot<'_>) {
        for part in &self.parts {
            visit(part.weight);
            part.bias.slots(visit);
        }
    }
}

impl<E: Element> VisitWeights<E> for Projection<E> {
    fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
        visit(&mut self.weight, Some(self.input));
        self.bias.iter_mut().for_each(|bias| visit(bias, None));
    }
}

impl<E: Element> Projection<E> {
    fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.outputs).sum()
    }

    fn weight(&self) -> Matrix<'_, E> {
        Matrix::new(&self.weight, self.outputs(), self.input)
    }

    /// The only projection.
    ///
    /// # Panics
    /// If there are none.
    pub fn only(&self) -> AffineMap<'_, E> {
        let part = &self.parts[0];
        AffineMap {
            weight: self.weight(),
            bias: self.bias.as_deref(),
            d_weight: part.weight,
            d_bias: part.bias,
            dtype: self.weight.dtype(),
        }
    }

    /// `y = x Wᵀ + b`
    pub fn forward(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) {
        self.forward_with_bias(x, self.bias.as_deref(), y);
    }

    fn forward_with_bias(&self, x: Matrix<'_, E>, bias: Option<&[E]>, y: MatrixMut<'_, E>) {
        match self.weight.quantized() {
            None => linear::forward(x, self.weight(), bias, y, self.weight.dtype()),
            Some(weight) => quantized::forward(x, weight.into(), bias, [y].into_iter().collect()),
        }
    }

    /// `y = x Wᵀ + b`, where the columns of `y` are in matrices of one width each.
    pub fn forward_in_parts<const N: usize>(&self, x: Matrix<'_, E>, y: [MatrixMut<'_, E>; N]) {
        let (bias, y) = (self.bias.as_deref(), y.into_iter().collect());
        match self.weight.quantized() {
            None => linear_parts::forward(x, self.weight(), bias, y, self.weight.dtype()),
            Some(weight) => quantized::forward(x, weight.into(), bias, y),
        }
    }

    /// The dtype of the operands of its products.
    pub fn dtype(&self) -> Dtype {
        self.weight.dtype()
    }

    /// `y = x Wᵀ`. The next pass over `y` adds the [bias](Self::bias_or_zeros).
    pub fn forward_without_bias(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) {
        self.forward_with_bias(x, None, y);
    }

    /// The bias that [`forward_without_bias`](Self::forward_without_bias) does not add, or zeros if there is none.
    pub fn bias_or_zeros(&self) -> Buffer<E> {
        let mut numbers = Buffer::zeros(self.outputs());
        if let Some(bias) = &self.bias {
            numbers.copy_from_slice(bias);
        }
        numbers
    }

    /// The bias of one of the projections, if it has one.
    pub fn bias(&self, part: usize) -> Option<&[E]> {
        let start: usize = self.parts[..part].iter().map(|part| part.outputs).sum();
        let bias = self.bias.as_deref()?;
        Some(&bias[start..][..self.parts[part].outputs])
    }

    /// `dx = dy W`, or `dx += dy W`
    pub fn input_gradient(&self, d_y: Matrix<'_, E>, into: WriteMode, d_x: MatrixMut<'_, E>) {
        linear::input_gradient(d_y, self.weight(), into, d_x, self.weight.dtype());
    }

    /// The derivative with respect to the input.
    pub fn input_backward(
        &self,
        d_y: Matrix<'_, E>,
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        if let Some((numbers, into)) = d_x.numbers_mut(gradients) {
            self.input_gradient(d_y, into, MatrixMut::new(numbers, d_y.rows(), self.input));
        }
    }

    /// The derivative with respect to the parameters and the input.
    pub fn backward(
        &self,
        x: Matrix<'_, E>,
        d_y: Matrix<'_, E>,
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        self.add_gradients(x, d_y, gradients);
        self.input_backward(d_y, d_x, gradients);
    }

    /// The derivative of the only projection, where the columns of `dy` are in matrices of one width each. One that is not there is 0.
    pub fn backward_in_parts<const N: usize>(
        &self,
        x: Matrix<'_, E>,
        d_y: [Option<Matrix<'_, E>>; N],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let AffineMap {
            weight,
            d_weight,
            d_bias,
            dtype,
            ..
        } = self.only();
        let width = weight.rows() / N;
        let parts = || {
            let parts = d_y.iter().enumerate();
            parts.filter_map(|(part, d_y)| Some((part * width..(part + 1) * width, (*d_y)?)))
        };
        let [mut d_weight, mut d_bias] = gradients.of_affine(d_weight, d_bias);
        for (outputs, d_y) in parts() {
            let numbers = outputs.start * self.input..outputs.end * self.input;
            let d_weight = d_weight.as_deref_mut().map(|to| &mut to[numbers]);
            let d_weight = d_weight.map(|to| MatrixMut::new(to, width, self.input));
            let d_bias = d_bias.as_deref_mut().map(|to| &mut to[outputs]);
            linear::parameter_gradients(d_y, x, WriteMode::Add, d_weight, d_bias, dtype);
        }
        if let Some((numbers, mut into)) = d_x.numbers_mut(gradients) {
            let mut d_x = MatrixMut::new(numbers, x.rows(), self.input);
            for (outputs, d_y) in parts() {
                let weight = weight.some_rows(outputs);
                linear::input_gradient(d_y, weight, into, d_x.reborrow(), dtype);
                into = WriteMode::Add;
            }
        }
    }

    /// `dW += dyᵀ x`, `db += Σ dy`, in the gradients of the tape, those that are wanted.
    pub fn add_gradients(
        &self,
        x: Matrix<'_, E>,
        d_y: Matrix<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let dtype = self.weight.dtype();
        // One product for all parts is faster than one for each.
        if let Some(([d_weight, d_bias], into)) = self.write_all(gradients) {
            let d_weight = d_weight.map(|to| MatrixMut::new(to, self.outputs(), self.input));
            return linear::parameter_gradients(d_y, x, into, d_weight, d_bias, dtype);
        }
        let mut start = 0;
        for part in &self.parts {
            let d_y = d_y.some_cols(start..start + part.outputs);
            let ([d_weight, d_bias], into) = gradients.write_affine(part.weight, part.bias);
            let d_weight = d_weight.map(|to| MatrixMut::new(to, part.outputs, self.input));
            linear::parameter_gradients(d_y, x, into, d_weight, d_bias, dtype);
            start += part.outputs;
        }
    }

    /// The gradients of several parts as those of one, if they have the memory of one.
    fn write_all<'a>(
        &self,
        gradients: &'a mut Gradients<E>,
    ) -> Option<([Option<&'a mut [E]>; 2], WriteMode)> {
        let weights: SmallVec<[_; 4]> = self.parts.iter().map(|part| part.weight).collect();
        let biases: SmallVec<[_; 4]> = self.parts.iter().filter_map(|part| part.bias).collect();
        let is_one = weights.len() > 1 && (biases.is_empty() || biases.len() == weights.len());
        is_one.then(|| gradients.write_stacked(&weights, &biases))?
    }
}

/// A projection whose weights are packed, for the products of all steps of a scan. Sums have another order than those of [`Projection`].
#[derive(Debug)]
pub struct PackedProjection<'a, E: Element> {
    weights: StepWeights<'a, E>,
    bias: Option<&'a [E]>,
}

#[derive(Debug)]
enum StepWeights<'a, E: Element> {
    Packed(PackedWeights<E>),
    /// They are in panels already.
    Quantized(&'a QuantizedMatrix),
}

impl<E: Element> Projection<E> {
    /// The map, packed.
    pub fn pack(&self) -> PackedProjection<'_, E> {
        PackedProjection {
            weights: match self.weight.quantized() {
                None => StepWeights::Packed(PackedWeights::transposed(self.weight())),
                Some(weight) => StepWeights::Quantized(weight),
            },
            bias: self.bias.as_deref(),
        }
    }

    /// The derivative with respect to the input, packed.
    pub fn pack_input_backward(&self) -> PackedWeights<E> {
        PackedWeights::new(self.weight())
    }
}

impl<E: Element> PackedProjection<'_, E> {
    /// `y = x Wᵀ + b`
    pub fn forward(&self, x: Matrix<'_, E>, y: MatrixMut<'_, E>) {
        self.forward_in_parts(x, [y]);
    }

    /// `y = x Wᵀ + b`, where the columns of `y` are in several matrices.
    pub fn forward_in_parts<const N: usize>(&self, x: Matrix<'_, E>, y: [MatrixMut<'_, E>; N]) {
        let y = y.into_iter().collect();
        match &self.weights {
            StepWeights::Packed(weights) => {
                let initial = self.bias.map_or(Initial::Zero, Initial::OfColumns);
                weights.multiply(x, initial, y);
            }
            StepWeights::Quantized(weight) => quantized::forward(x, (*weight).into(), self.bias, y),
        }
    }
}

/// `dx = dy W`, or `dx += dy W`, with packed weights.
pub fn packed_input_backward<E: Element>(
    weights: &PackedWeights<E>,
    d_y: Matrix<'_, E>,
    d_x: &mut GradTarget<'_, E>,
    gradients: &mut Gradients<E>,
) {
    if let Some((numbers, into)) = d_x.numbers_mut(gradients) {
        let initial = match into {
            WriteMode::Overwrite => Initial::Zero,
            WriteMode::Add => Initial::Old,
        };
        let d_x = MatrixMut::new(numbers, d_y.rows(), weights.columns());
        weights.multiply(d_y, initial, [d_x].into_iter().collect());
    }
}
