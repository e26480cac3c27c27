//! An operation of this crate on dfdx's tape.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Merge, PutTape, RandomU64, SplitTape, Storage, Tape, Tensor},
};

use super::arena::{Flat, Numbers, Reservations, Unread};
use super::{
    Arena, Array, GradTarget, GradientRefs, Gradients, Slot, VisitSlot, VisitWeights,
    WantsGradient, WeightVisitor, finished::Watch, id_of, zeros,
};
use crate::{
    Backend, Element,
    composed::reshape,
    kernel::{Buffer, Dtype, Matrix, MatrixMut, quantized::QuantizedMatrix},
    memory::AllocationGuard,
    random::{DrawSeeds, Part, Philox4x32},
    unoptimised,
};

/// Collects the operands of an operation: their numbers, their tapes, and their gradients.
///
/// ```
/// use attn::{__private::runtime::fused::Operation, dfdx::prelude::*};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<2>, f32, _> = dev.tensor([1.0, 2.0]);
///
/// // y = 3 x, and so dx = 3 dy.
/// let mut operation = Operation::default();
/// let operand = operation.read(x.leaky_trace()).unwrap();
/// let y = operand.values().iter().map(|x| 3.0 * x).collect();
/// let y = operation
///     .finish(&dev, y, *x.shape(), move |d_y, gradients| {
///         for (d_x, d_y) in operand.gradient(gradients).iter_mut().zip(d_y) {
///             *d_x += 3.0 * d_y;
///         }
///     })
///     .unwrap();
/// assert_eq!(y.array(), [3.0, 6.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [3.0, 3.0]);
/// ```
pub struct Operation<E: Element, D: Backend<E>, T> {
    tape: T,
    operands: GradientRefs<E, D>,
    /// Where the parameters of a model go, or are already.
    arena: Arena<E>,
    /// The dtype of the operands of products with the parameters, and of those of attention.
    dtype: Dtype,
    /// The parameters of a model, while places for them are reserved.
    parameters: Option<Reservations<E, D>>,
    /// Which gradients are wanted.
    wanted: WantedSlots,
    /// Where the derivative goes instead of the tape.
    derived: Option<Derived<E>>,
    /// The seeds of dropout, if they are not the device's.
    seeds: Option<StepSeeds>,
}

impl<E: Element, D: Backend<E>, T: Default> Default for Operation<E, D, T> {
    fn default() -> Self {
        Self {
            tape: T::default(),
            operands: GradientRefs::default(),
            arena: Arena::default(),
            dtype: Dtype::default(),
            parameters: None,
            wanted: WantedSlots::All,
            derived: None,
            seeds: None,
        }
    }
}

impl<E: Element, D: Backend<E>, T> Operation<E, D, T> {
    /// Moves the tape of an input to the operation.
    pub fn input<S: Shape, F: Clone>(&mut self, x: Tensor<S, F, D, T>) -> Tensor<S, F, D>
    where
        D: Storage<F>,
        T: Default + Merge<T>,
    {
        let (x, tape) = x.split_tape();
        self.tape = std::mem::take(&mut self.tape).merge(tape);
        x
    }

    /// The numbers of a tensor, row-major. They are copied, since dfdx does not lend them.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    pub fn read<S: Shape>(&mut self, x: Tensor<S, E, D, T>) -> Result<Operand<E>, D::Err>
    where
        T: Tape<E, D>,
    {
        let axes: Vec<usize> = x.shape().concrete().into_iter().collect();
        let (width, rows) = axes.split_last().unwrap_or((&1, &[]));
        let x = self.flat(x)?;
        let mut values = Buffer::uninit(x.shape().0);
        x.copy_into(&mut values);
        Ok(Operand {
            values: Numbers::of(values),
            rows: rows.iter().product(),
            width: *width,
            slot: self.place(&x),
        })
    }

    /// The numbers of a parameter, or of another tensor without a tape, row-major. Between [`begin_parameters`](Self::begin_parameters) and
    /// [`read_parameters`](Self::read_parameters), they are read later.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parameter<S: Shape>(&mut self, x: &Tensor<S, E, D>) -> Result<Operand<E>, D::Err>
    where
        T: Tape<E, D>,
    {
        let axes: Vec<usize> = x.shape().concrete().into_iter().collect();
        let (width, rows) = axes.split_last().unwrap_or((&1, &[]));
        let x = self.unread(x)?;
        let (len, slot) = (x.tensor.shape().0, x.slot);
        Ok(Operand {
            values: self.reserve(|arena| arena.reserve([(len, Some(x))])),
            rows: rows.iter().product(),
            width: *width,
            slot,
        })
    }

    /// A parameter, with the slot of its gradient.
    pub(super) fn unread<S: Shape>(&mut self, x: &Tensor<S, E, D>) -> Result<Unread<E, D>, D::Err>
    where
        T: Tape<E, D>,
    {
        let tensor = self.flat(x.retaped::<T>())?;
        Ok(Unread {
            id: id_of(x),
            slot: self.place(&tensor),
            tensor,
        })
    }

    /// The dtype of the operands of products.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Reserves places for parameters, and reads them, unless others follow.
    pub(super) fn reserve<R>(&mut self, reserve: impl FnOnce(&mut Reservations<E, D>) -> R) -> R {
        match &mut self.parameters {
            Some(parameters) => reserve(parameters),
            None => {
                let mut parameters = Reservations::of(Arena::default(), self.dtype);
                let reserved = reserve(&mut parameters);
                parameters.fill();
                reserved
            }
        }
    }

    /// The parameters that follow are those of one model. They are read by [`read_parameters`](Self::read_parameters).
    pub(crate) fn begin_parameters(&mut self) {
        self.parameters = Some(Reservations::of(Arc::clone(&self.arena), self.dtype));
        if let WantedSlots::Parameters { first, .. } = &mut self.wanted {
            *first = Some(self.operands.count());
        }
    }

    /// Reads the parameters since [`begin_parameters`](Self::begin_parameters), by one copy, and returns their places.
    pub(crate) fn read_parameters(&mut self) -> Option<Reservations<E, D>> {
        let parameters = self.parameters.take();
        parameters.inspect(Reservations::fill)
    }

    /// The parameters since [`begin_parameters`](Self::begin_parameters).
    pub(crate) fn into_parameters(self) -> Option<Reservations<E, D>> {
        self.parameters
    }

    /// An operation of a trainer, which has the parameters in `arena`, and multiplies them in this type.
    pub(crate) fn of_step(arena: Arena<E>, dtype: Dtype) -> Self
    where
        T: Default,
    {
        Self {
            arena,
            dtype,
            ..Self::default()
        }
    }

    /// The same, whose derivative goes to `derived`. `trained` says of each parameter whether its gradient is wanted. Those of inputs are
    /// not.
    pub(crate) fn deriving(
        self,
        derived: Derived<E>,
        seeds: StepSeeds,
        trained: Arc<[bool]>,
    ) -> Self {
        Self {
            derived: Some(derived),
            seeds: Some(seeds),
            wanted: WantedSlots::Parameters {
                first: None,
                trained,
            },
            ..self
        }
    }

    /// The source of the seeds of dropout: the device, or the trainer.
    pub fn seeds(&mut self, device: &D) -> PassSeeds<D>
    where
        D: RandomU64,
    {
        PassSeeds {
            of_step: self.seeds.take(),
            device: device.clone(),
        }
    }

    /// The tensor as a row-major vector without a tape: a view if possible.
    pub(super) fn flat<S: Shape>(&mut self, x: Tensor<S, E, D, T>) -> Result<Flat<E, D>, D::Err>
    where
        T: Tape<E, D>,
    {
        let len = x.shape().num_elements();
        Ok(self.input(reshape(x, (len,))?))
    }

    /// The slot for the gradient of a contiguous tensor.
    pub fn place<S: Shape>(&mut self, x: &Tensor<S, E, D>) -> Slot {
        let slot = self.operands.add(x);
        let is_wanted = match &self.wanted {
            WantedSlots::All => true,
            WantedSlots::Parameters { first, trained } => first
                .and_then(|first| trained.get(slot.index() - first))
                .copied()
                .unwrap_or_default(),
        };
        slot.if_wanted(is_wanted)
    }

    /// Finishes the operation. `backward` gets the gradient of the result, and adds to the gradients of the operands.
    ///
    /// # Errors
    /// If the tensor cannot be created.
    pub fn finish<S: Shape>(
        self,
        device: &D,
        values: Vec<E>,
        shape: S,
        backward: impl FnOnce(&[E], &mut Gradients<E>) + 'static,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        T: Tape<E, D>,
    {
        let result = device.try_tensor_from_vec(values, shape)?;
        let mut results = GradientRefs::default();
        results.add(&result);
        let tape = self.record(results, |[d_result], gradients| {
            backward(d_result, gradients)
        });
        Ok(result.put_tape(tape))
    }

    /// [`finish`](Self::finish) for a result that is a matrix. Its gradient is a matrix, too.
    ///
    /// # Errors
    /// If the tensor cannot be created.
    pub fn finish_matrix<S: Shape>(
        self,
        device: &D,
        output: Output<E>,
        shape: S,
        backward: impl FnOnce(Matrix<'_, E>, &mut Gradients<E>) + 'static,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        T: Tape<E, D>,
    {
        let Output {
            values,
            guard,
            rows,
            width,
        } = output;
        drop(guard);
        self.finish(device, values, shape, move |d_result, gradients| {
            backward(Matrix::new(d_result, rows, width), gradients)
        })
    }

    /// Records the derivative of an operation with `N` results on the tape. The results count as [activations](crate::memory) until the
    /// derivative is computed. Their gradients count during that computation.
    pub fn record<const N: usize>(
        self,
        results: GradientRefs<E, D>,
        backward: impl FnOnce([&[E]; N], &mut Gradients<E>) + 'static,
    ) -> T
    where
        T: Tape<E, D>,
    {
        let backward = move |d: &Gradients<E>, gradients: &mut Gradients<E>| {
            backward(d.all(), gradients);
        };
        self.record_boxed(results, None, Box::new(backward))
    }

    /// [`record`](Self::record), where a result may have no gradient: nothing with a gradient was computed of it. Then no memory is taken or
    /// read for it.
    pub fn record_given<const N: usize>(
        self,
        device: &D,
        results: GradientRefs<E, D>,
        backward: impl FnOnce([Option<&[E]>; N], &mut Gradients<E>) + 'static,
    ) -> T
    where
        T: Tape<E, D>,
    {
        let backward = move |d: &Gradients<E>, gradients: &mut Gradients<E>| {
            let given = d.all().map(|d| (!d.is_empty()).then_some(d));
            backward(given, gradients);
        };
        self.record_boxed(results, Some(device.clone()), Box::new(backward))
    }

    /// [`record`](Self::record), compiled once for all derivatives. With a device, results may have no gradient.
    fn record_boxed(
        mut self,
        results: GradientRefs<E, D>,
        device: Option<D>,
        backward: Backward<E>,
    ) -> T
    where
        T: Tape<E, D>,
    {
        if T::OWNS_TAPE {
            unoptimised::warn_once();
        }
        let operands = self.operands;
        if let Some(derived) = self.derived {
            derived.replace(Some(Derivative {
                lens: operands.lens().collect(),
                backward,
            }));
            return self.tape;
        }
        let guard = AllocationGuard::of::<E>(results.len());
        self.tape.add_backward_op(move |tape| {
            let d_results = match &device {
                Some(device) => results.take_given(device, tape)?,
                None => results.take(tape)?,
            };
            let d_guard = AllocationGuard::of::<E>(d_results.len());
            let mut gradients = operands.take(tape)?;
            backward(&d_results, &mut gradients);
            drop([guard, d_guard]);
            operands.give_back(gradients, tape)?;
            results.give_back(d_results, tape)
        });
        self.tape
    }
}

/// The operands whose gradients are wanted.
enum WantedSlots {
    All,
    /// The slots of trained parameters; inputs have none that is wanted.
    Parameters {
        /// The slot of the first parameter, once all inputs have one.
        first: Option<usize>,
        trained: Arc<[bool]>,
    },
}

/// A derivative: it reads the gradients of the results, and adds to those of the operands.
type Backward<E> = Box<dyn FnOnce(&Gradients<E>, &mut Gradients<E>)>;

/// The derivative of an operation with one result, outside of a tape.
pub(crate) struct Derivative<E> {
    /// The number of elements of each operand.
    pub(crate) lens: Vec<usize>,
    backward: Backward<E>,
}

impl<E: Element> Derivative<E> {
    /// Adds to the gradients of the operands those of `scale` times the result, which is a number.
    pub(crate) fn run(self, scale: E, gradients: &mut Gradients<E>) {
        let d_result = Gradients::of_numbers(vec![vec![scale]]);
        gradients.unwatched(|gradients| (self.backward)(&d_result, gradients));
    }

    /// [`run`](Self::run), where `watch` hears of gradients that are finished.
    pub(crate) fn run_watched<W: Watch<Gradients<E>>>(
        self,
        scale: E,
        gradients: &mut Gradients<E>,
        watch: W,
    ) -> W {
        let d_result = Gradients::of_numbers(vec![vec![scale]]);
        gradients.watched(watch, |gradients| (self.backward)(&d_result, gradients))
    }
}

/// Where an operation leaves its derivative.
pub(crate) type Derived<E> = Rc<RefCell<Option<Derivative<E>>>>;

/// The seeds of one pass.
pub struct PassSeeds<D> {
    /// The seeds of a trainer's step, if this is one.
    of_step: Option<StepSeeds>,
    device: D,
}

impl<D: RandomU64 + Sync> DrawSeeds for PassSeeds<D> {
    fn draw(&self) -> u64 {
        match &self.of_step {
            Some(seeds) => seeds.draw(),
            None => self.device.random_u64(),
        }
    }

    fn part(&self) -> Part {
        self.of_step
            .as_ref()
            .map_or(Part::WHOLE, |seeds| seeds.part)
    }
}

/// The seeds of the dropouts of one pass: a function of a key, the step, the batch in it, and the number of the dropout.
pub(crate) struct StepSeeds {
    key: Philox4x32,
    step: u64,
    batch: u32,
    drawn: AtomicU32,
    part: Part,
}

impl StepSeeds {
    pub(crate) fn new(seed: u64, step: u64, batch: u32) -> Self {
        Self {
            key: Philox4x32::new(seed),
            step,
            batch,
            drawn: AtomicU32::new(0),
            part: Part::WHOLE,
        }
    }

    /// The seeds of the same step for a part of the batch.
    pub(crate) fn of_part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    pub(crate) fn draw(&self) -> u64 {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        let [low, high] = [self.step, self.step >> 32].map(|word| word as u32);
        let [a, b, ..] = self.key.block([low, high, self.batch, drawn]);
        u64::from(a) << 32 | u64::from(b)
    }
}

/// The buffer of an operation's result.
pub struct Output<E> {
    values: Vec<E>,
    /// Counts the buffer until a tensor owns it.
    guard: AllocationGuard,
    rows: usize,
    width: usize,
}

impl<E: Element> Output<E> {
    /// Zeros.
    pub fn zeros(rows: usize, width: usize) -> Self {
        Self {
            values: zeros(rows * width),
            guard: AllocationGuard::of::<E>(rows * width),
            rows,
            width,
        }
    }

    /// The tensor, without a tape.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn into_tensor<S: Shape, D: Backend<E>>(
        self,
        device: &D,
        shape: S,
    ) -> Result<Tensor<S, E, D>, D::Err> {
        device.try_tensor_from_vec(self.values, shape)
    }

    /// The number of rows, and of columns.
    pub(super) fn extents(&self) -> [usize; 2] {
        [self.rows, self.width]
    }

    /// The numbers, row-major, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [E] {
        &mut self.values
    }

    /// The whole result, mutable, as in an [`Array`](super::Array).
    pub fn view_mut(&mut self) -> MatrixMut<'_, E> {
        MatrixMut::new(&mut self.values, self.rows, self.width)
    }
}

/// The numbers of a tensor, and the slot of its gradient.
pub struct Operand<E: Element> {
    values: Numbers<E>,
    rows: usize,
    /// The size of the last axis.
    width: usize,
    slot: Slot,
}

impl<E: Element> WantsGradient for Operand<E> {
    fn slots(&self, visit: VisitSlot<'_>) {
        visit(self.slot);
    }
}

impl<E: Element> VisitWeights<E> for Operand<E> {
    fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
        visit(&mut self.values, None);
    }
}

impl<E: Element> Operand<E> {
    /// [`visit_weights`](VisitWeights::visit_weights) of a matrix that can be rounded, whose columns are the last axis.
    pub(crate) fn visit_matrix(&mut self, visit: WeightVisitor<'_, E>) {
        visit(&mut self.values, Some(self.width));
    }

    /// The matrix, if it is rounded.
    pub(crate) fn quantized(&self) -> Option<&QuantizedMatrix> {
        self.values.quantized()
    }

    /// The dtype of the operands of products with them.
    pub(crate) fn dtype(&self) -> Dtype {
        self.values.dtype()
    }

    /// The numbers as a matrix, whose columns are the last axis.
    pub fn matrix(&self) -> Matrix<'_, E> {
        Matrix::new(&self.values, self.rows, self.width)
    }

    /// The current gradient as a matrix, to add to.
    pub fn gradient_matrix<'a>(&self, gradients: &'a mut Gradients<E>) -> MatrixMut<'a, E> {
        MatrixMut::new(self.gradient(gradients), self.rows, self.width)
    }

    /// The numbers, row-major.
    pub fn values(&self) -> &[E] {
        &self.values
    }

    /// The destination of its gradient.
    pub fn target<'a>(&self) -> GradTarget<'a, E> {
        GradTarget::slot(self.slot)
    }

    /// An array for its gradient, if this is wanted. [`add_array`](Self::add_array) adds it.
    pub fn d_array(&self) -> Option<Array<E>> {
        let is_wanted = self.slot.is_wanted();
        is_wanted.then(|| Array::uninit(self.rows, [self.width]))
    }

    /// Adds an array to its gradient.
    pub fn add_array(&self, d: Option<Array<E>>, gradients: &mut Gradients<E>) {
        if let Some(d) = d {
            self.target().add(1.0, d.as_slice(), gradients);
        }
    }

    /// The slot of its gradient.
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// The slot of its gradient, without the numbers.
    pub fn into_slot(self) -> Slot {
        self.slot
    }

    /// The current gradient, to add to. If it is not wanted, it is memory that nobody reads.
    pub fn gradient<'a>(&self, gradients: &'a mut Gradients<E>) -> &'a mut [E] {
        gradients.of(self.slot)
    }
}
