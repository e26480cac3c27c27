//! Feed-forward layers: two affine maps with a nonlinearity between them.

pub(crate) mod composed;
mod module;

pub use module::{
    BiasedGatedFeedForward, FeedForward, GatedFeedForward, GatedMaps, UnbiasedFeedForward,
    UngatedMaps,
};

use dfdx::{
    shapes::{Const, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, Output, ProjectionBuilder},
    kernel::{activation as kernel, dropout::Dropout},
    model::Pass,
    ops::{Activation, Affine, EndsIn, check_shape},
    random::RandomU64,
    unwrap,
};

use slices::HiddenLayer;

/// `y = act(x W₁ᵀ + b₁) W₂ᵀ + b₂`, for `x [.., I]`, a map `up` to `H` numbers and a map `down` to `O` numbers, and `y [.., O]`.
///
/// The feed-forward layer of Vaswani et al., "Attention is all you need" (2017), section 3.3. PyTorch:
/// `linear(act(linear(x, w1, b1)), w2, b2)`. The backward pass recomputes the activations.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Affine, Relu, feed_forward}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<1, 2>, f32, _> = dev.tensor([[3.0, 1.0]]);
/// let (up, down) = (dev.tensor([[1.0, -1.0], [-1.0, 1.0]]), dev.tensor([[2.0, 5.0]]));
/// let bias = dev.tensor([1.0]);
/// let up = Affine { weight: &up, bias: None };
/// let down = Affine { weight: &down, bias: Some(&bias) };
/// let y = feed_forward::<Relu, _, 2, 2, 1, _, _, _>(x, up, down);
/// assert_eq!(y.array(), [[5.0]]);
/// ```
///
/// # Panics
/// If [`try_feed_forward`] returns an error.
#[track_caller]
pub fn feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Tensor<S::With<Const<O>>, E, D, T>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    unwrap(try_feed_forward::<A, S, I, H, O, E, D, T>(x, up, down))
}

/// The fallible version of [`feed_forward`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x`, of the activations or of the result do not fit the memory;
/// [`Error::Device`] if dfdx fails.
pub fn try_feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    feed_forward_with_form::<A, S, I, H, O, E, D, T>(D::FUSED, x, up, down, 0.0)
}

/// [`try_feed_forward`] in the fused or the composed form, with dropout of the hidden layer if `x` has a tape.
pub(crate) fn feed_forward_with_form<
    A,
    S,
    const I: usize,
    const H: usize,
    const O: usize,
    E,
    D,
    T,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
    p: f64,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let dropout = (p, seed::<E, D, T>(x.device(), p));
    check::<S, I, H, O, _>("feed_forward", x.shape())?;
    if !fused {
        return Ok(
            composed::feed_forward_with_dropout::<A, S, I, H, O, E, D, T>(x, up, down, dropout)?,
        );
    }
    let mut operation = Operation::default();
    let up = ProjectionBuilder::new(I).push(&mut operation, up.weight, up.bias)?;
    let middle = HiddenLayer {
        activation: A::KERNEL,
        gated: false,
        width: H,
    };
    Ok(run(operation, x, up, (middle, dropout), down)?)
}

/// `y = (act(x W₁ᵀ) * (x W₂ᵀ)) W₃ᵀ`, each map with an optional bias: for `x [.., I]`, maps `gate` and `up` to `H` numbers and a map
/// `down` to `O` numbers, and `y [.., O]`.
///
/// Shazeer, "GLU variants improve transformer" (2020). With [`Silu`](super::Silu) and without biases, it is the feed-forward layer of
/// LLaMA. PyTorch: `down(act(gate(x)) * up(x))`, of three `torch.nn.Linear`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Affine, Relu, gated_feed_forward}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<1>, f32, _> = dev.tensor([3.0]);
/// let (gate, up, down) = (dev.tensor([[2.0], [-1.0]]), dev.tensor([[5.0], [7.0]]), dev.tensor([[1.0, 1.0]]));
/// let gate = Affine { weight: &gate, bias: None };
/// let up = Affine { weight: &up, bias: None };
/// let down = Affine { weight: &down, bias: None };
/// let y = gated_feed_forward::<Relu, _, 1, 2, 1, _, _, _>(x, gate, up, down);
/// assert_eq!(y.array(), [90.0]);
/// ```
///
/// # Panics
/// If [`try_gated_feed_forward`] returns an error.
#[track_caller]
pub fn gated_feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Tensor<S::With<Const<O>>, E, D, T>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    unwrap(try_gated_feed_forward::<A, S, I, H, O, E, D, T>(
        x, gate, up, down,
    ))
}

/// The fallible version of [`gated_feed_forward`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x`, of the activations or of the result do not fit the memory;
/// [`Error::Device`] if dfdx fails.
pub fn try_gated_feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    gated_feed_forward_with_form::<A, S, I, H, O, E, D, T>(D::FUSED, x, gate, up, down, 0.0)
}

/// [`try_gated_feed_forward`] in the fused or the composed form, with dropout of the hidden layer if `x` has a tape.
pub(crate) fn gated_feed_forward_with_form<
    A,
    S,
    const I: usize,
    const H: usize,
    const O: usize,
    E,
    D,
    T,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
    p: f64,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let dropout = (p, seed::<E, D, T>(x.device(), p));
    check::<S, I, H, O, _>("gated_feed_forward", x.shape())?;
    if !fused {
        return Ok(composed::gated_feed_forward_with_dropout::<
            A,
            S,
            I,
            H,
            O,
            E,
            D,
            T,
        >(x, gate, up, down, dropout)?);
    }
    let mut operation = Operation::default();
    let both = ProjectionBuilder::new(I)
        .push(&mut operation, gate.weight, gate.bias)?
        .push(&mut operation, up.weight, up.bias)?;
    let middle = HiddenLayer {
        activation: A::KERNEL,
        gated: true,
        width: H,
    };
    Ok(run(operation, x, both, (middle, dropout), down)?)
}

/// The seed of a dropout with probability `p`, in training.
fn seed<E: Element, D: Backend<E>, T: Tape<E, D>>(device: &D, p: f64) -> Option<u64> {
    (T::OWNS_TAPE && p != 0.0).then(|| RandomU64::random_u64(device))
}

/// Checks that the largest tensor can exist: the hidden layer has at most `2 H` numbers per vector.
fn check<S: EndsIn<I>, const I: usize, const H: usize, const O: usize, Dev>(
    operation: &'static str,
    shape: &S,
) -> Result<(), Error<Dev>> {
    check_shape(operation, shape)?;
    check_shape(operation, &shape.with_last(2 * H))?;
    check_shape(operation, &shape.with_last(O))
}

fn run<K, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    mut operation: Operation<E, D, T>,
    x: Tensor<S, E, D, T>,
    up: ProjectionBuilder<E, D>,
    (middle, (p, seed)): (HiddenLayer<K>, (f64, Option<u64>)),
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, D::Err>
where
    K: kernel::Activation + 'static,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let device = x.device().clone();
    let shape = x.shape().with_last(Const::<O>);
    let layer = slices::FeedForward {
        up: up.read(&mut operation),
        middle,
        down: ProjectionBuilder::new(H)
            .push(&mut operation, down.weight, down.bias)?
            .read(&mut operation),
    };
    let rows = x.shape().leading().num_elements();
    let x = operation.read(x)?;
    let mut y = Output::zeros(rows, O);
    let dropout = Dropout::new(p, seed);
    let hidden = layer.forward(x.matrix(), dropout, y.view_mut());
    operation.finish_matrix(&device, y, shape, move |d_y, gradients| {
        layer.backward(x.matrix(), hidden, d_y, &mut x.target(), gradients)
    })
}

impl<T> Pass<'_, T> {
    /// Two maps with a nonlinearity between them, `[.., M]` to `[.., M]`: [`feed_forward`].
    ///
    /// # Errors
    /// The errors of [`try_feed_forward`].
    pub fn feed_forward<S, const M: usize, const H: usize, A, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &impl UngatedMaps<M, H, E, D, Activation = A>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        A: Activation,
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        self.feed_forward_with_dropout(x, layer, 0.0)
    }

    /// [`feed_forward`](Self::feed_forward). In training, numbers between them fall with
    /// probability `p`, as in PyTorch's `torch.nn.TransformerEncoderLayer`.
    ///
    /// # Errors
    /// The errors of [`try_feed_forward`].
    pub fn feed_forward_with_dropout<
        S,
        const M: usize,
        const H: usize,
        A,
        E: Element,
        D: Backend<E>,
    >(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &impl UngatedMaps<M, H, E, D, Activation = A>,
        p: f64,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        A: Activation,
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        let (up, down) = layer.maps();
        let p = if self.train() { p } else { 0.0 };
        self.run(x, |fused, x| {
            feed_forward_with_form::<A, S, M, H, M, E, D, T>(fused, x, up, down, p)
        })
    }

    /// A gated feed-forward layer, `[.., M]` to `[.., M]`: [`gated_feed_forward`].
    ///
    /// # Errors
    /// The errors of [`try_gated_feed_forward`].
    pub fn gated_feed_forward<S, const M: usize, const H: usize, A, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &impl GatedMaps<M, H, E, D, Activation = A>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        A: Activation,
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        self.gated_feed_forward_with_dropout(x, layer, 0.0)
    }

    /// [`gated_feed_forward`](Self::gated_feed_forward). In training, gated numbers fall with probability `p`.
    ///
    /// # Errors
    /// The errors of [`try_gated_feed_forward`].
    pub fn gated_feed_forward_with_dropout<
        S,
        const M: usize,
        const H: usize,
        A,
        E: Element,
        D: Backend<E>,
    >(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &impl GatedMaps<M, H, E, D, Activation = A>,
        p: f64,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        A: Activation,
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        let (gate, up, down) = layer.maps();
        let p = if self.train() { p } else { 0.0 };
        self.run(x, |fused, x| {
            gated_feed_forward_with_form::<A, S, M, H, M, E, D, T>(fused, x, gate, up, down, p)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{
            Array, Entry, Footprint, GradTarget, Gradients, Projection, VisitSlot, VisitWeights,
            WantsGradient, WeightVisitor,
        },
        kernel::{
            Dtype, Matrix, MatrixMut, RoundedRows, activation as kernel,
            dropout::Dropout,
            loops::{self, InPlace, known::Copy},
            parallel::{for_each, rows_per_task},
            rounded_rows::round_in_place,
        },
        simd::WriteMode,
    };

    /// The values that are kept of a [`FeedForward`] for its derivative.
    pub struct Hidden<E: Element> {
        input: Input<E>,
        dropout: Dropout,
    }

    /// The input of the hidden layer without its bias.
    enum Input<E: Element> {
        Whole(Array<E>),
        /// Where products round their operands, their results are kept in bf16, and that is what the hidden layer reads.
        Rounded(RoundedRows<E>),
    }

    /// Numbers of the hidden layer fall.
    fn drop_out<E: Element>(dropout: Dropout, numbers: &mut Array<E>) {
        if !dropout.is_none() {
            let to = numbers.as_mut_slice().into();
            loops::compute(&Copy, [dropout.of(InPlace)], [to]);
        }
    }

    /// A feed-forward layer, gated or not.
    pub struct FeedForward<K, E: Element> {
        /// The first map, or the gate and the first map.
        pub up: Projection<E>,
        /// The hidden layer.
        pub middle: HiddenLayer<K>,
        /// The second map.
        pub down: Projection<E>,
    }

    /// The hidden layer: a nonlinearity, gated or not.
    #[derive(Clone, Copy, Debug)]
    pub struct HiddenLayer<K> {
        /// The nonlinearity.
        pub activation: K,
        /// Whether the first half of its input gates the second half.
        pub gated: bool,
        /// The width of its output.
        pub width: usize,
    }

    /// The width of the input of a hidden layer with an output of this width.
    const fn input(width: usize, gated: bool) -> usize {
        if gated {
            width.saturating_mul(2)
        } else {
            width
        }
    }

    /// The footprint of a [`FeedForward`] of `rows` vectors, with a hidden layer of this width.
    pub const fn feed_forward_footprint(rows: &[usize], width: usize, gated: bool) -> Footprint {
        let rows = Footprint::numbers(rows);
        let input = input(width, gated);
        let parts = [
            Footprint::array(&[rows, input]),
            Footprint::rounded(rows, input),
            Footprint::array(&[rows, width]),
        ];
        const INPUT: usize = 0;
        const ROUNDED: usize = 1;
        const ACTIVE: usize = 2;
        Footprint::of(
            &parts,
            &[
                Entry::Take(INPUT),
                Entry::Take(ACTIVE),
                Entry::Replace(INPUT, ROUNDED),
                Entry::Free(ACTIVE),
            ],
            &[Entry::Take(ACTIVE), Entry::Replace(ROUNDED, INPUT)],
        )
    }

    impl<K: kernel::Activation> HiddenLayer<K> {
        fn input(&self) -> usize {
            input(self.width, self.gated)
        }

        /// `y` for `x + bias`.
        fn forward<E: Element>(&self, x: Matrix<'_, E>, bias: &[E], y: MatrixMut<'_, E>) {
            match self.gated {
                true => kernel::gated_forward(self.activation, x, bias, y),
                false => kernel::biased_forward(self.activation, x, bias, y),
            }
        }

        /// Replaces `x` by its gradient, and the gradient of the output by the output.
        fn backward<E: Element>(&self, x: MatrixMut<'_, E>, bias: &[E], d_y: MatrixMut<'_, E>) {
            match self.gated {
                true => kernel::gated_backward_in_place(self.activation, x, bias, d_y),
                false => kernel::biased_backward_in_place(self.activation, x, bias, d_y),
            }
        }

        /// Rounds `x`, and computes `y` for that and the bias, in one pass over memory.
        fn round_and_forward<E: Element>(
            &self,
            mut x: Array<E>,
            bias: &[E],
            y: MatrixMut<'_, E>,
        ) -> RoundedRows<E> {
            let mut rounded = RoundedRows::uninit(y.rows(), self.input());
            let some = rows_per_task(self.input());
            let parts = x.view_mut().row_chunks(some).zip(y.row_chunks(some));
            let parts = parts.zip(rounded.write().row_chunks(some));
            for_each(parts, |((mut x, y), to)| {
                round_in_place(x.reborrow(), to);
                self.forward(x.as_ref(), bias, y);
            });
            rounded
        }

        /// [`backward`](Self::backward) for rounded numbers: `x` gets these first, in the same pass over memory.
        fn backward_of_rounded<E: Element>(
            &self,
            rounded: &RoundedRows<E>,
            x: MatrixMut<'_, E>,
            bias: &[E],
            d_y: MatrixMut<'_, E>,
        ) {
            let some = rows_per_task(self.input());
            let parts = x.row_chunks(some).zip(d_y.row_chunks(some));
            let parts = parts.zip(rounded.read().row_chunks(some));
            for_each(parts, |((mut x, d_y), rounded)| {
                E::widen_rows(rounded, x.reborrow());
                self.backward(x, bias, d_y);
            });
        }
    }

    impl<K, E: Element> WantsGradient for FeedForward<K, E> {
        fn slots(&self, visit: VisitSlot<'_>) {
            self.up.slots(visit);
            self.down.slots(visit);
        }
    }

    impl<K, E: Element> VisitWeights<E> for FeedForward<K, E> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            self.up.visit_weights(visit);
            self.down.visit_weights(visit);
        }
    }

    impl<K: kernel::Activation, E: Element> FeedForward<K, E> {
        /// Computes the result. What it returns is for the backward pass, which recomputes the output of the hidden layer.
        pub fn forward(
            &self,
            x: Matrix<'_, E>,
            dropout: Dropout,
            y: MatrixMut<'_, E>,
        ) -> Hidden<E> {
            let input = self.input(x);
            let bias = self.up.bias_or_zeros();
            let mut active = Array::uninit(x.rows(), [self.middle.width]);
            let to = active.view_mut();
            let input = match self.up.dtype() {
                Dtype::Model => {
                    self.middle.forward(input.view(), &bias, to);
                    Input::Whole(input)
                }
                Dtype::Bf16 => Input::Rounded(self.middle.round_and_forward(input, &bias, to)),
            };
            drop_out(dropout, &mut active);
            self.down.forward(active.view(), y);
            Hidden { input, dropout }
        }

        /// Computes the hidden layer alone, as [`forward`](Self::forward) keeps it for the derivative.
        pub fn hidden(&self, x: Matrix<'_, E>, dropout: Dropout) -> Hidden<E> {
            let input = self.input(x);
            let input = match self.up.dtype() {
                Dtype::Model => Input::Whole(input),
                Dtype::Bf16 => Input::Rounded(RoundedRows::of(input.view())),
            };
            Hidden { input, dropout }
        }

        fn input(&self, x: Matrix<'_, E>) -> Array<E> {
            let mut input = Array::uninit(x.rows(), [self.middle.input()]);
            self.up.forward_without_bias(x, input.view_mut());
            input
        }

        /// The derivative. It overwrites the input of the hidden layer with its gradient.
        pub fn backward(
            &self,
            x: Matrix<'_, E>,
            hidden: Hidden<E>,
            d_y: Matrix<'_, E>,
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            if !self.up.is_wanted() && !d_x.is_wanted() && !self.down.is_wanted() {
                return;
            }
            let Hidden { input, dropout } = hidden;
            let mut active = Array::uninit(d_y.rows(), [self.middle.width]);
            self.down
                .input_gradient(d_y, WriteMode::Overwrite, active.view_mut());
            // The gradients of the numbers that fell, and then these again.
            drop_out(dropout, &mut active);
            let bias = self.up.bias_or_zeros();
            let d_active = active.view_mut();
            let d_input = match input {
                Input::Whole(mut x) => {
                    self.middle.backward(x.view_mut(), &bias, d_active);
                    x
                }
                Input::Rounded(rounded) => {
                    let mut x = Array::uninit(rounded.rows(), [rounded.width()]);
                    let to = x.view_mut();
                    self.middle
                        .backward_of_rounded(&rounded, to, &bias, d_active);
                    x
                }
            };
            drop_out(dropout, &mut active);
            self.down.add_gradients(active.view(), d_y, gradients);
            drop(active);
            self.up.backward(x, d_input.view(), d_x, gradients)
        }
    }
}
