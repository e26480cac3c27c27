//! Convolutions over one or two axes, and transposed ones.

mod composed;
mod module;

use dfdx::{
    dtypes::Dtype,
    shapes::{Rank1, Rank3, Rank4, Shape},
    tensor::{Storage, Tape, Tensor},
};

pub use crate::kernel::convolution::Channels;
pub use module::{
    Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Slide, Slides, UnbiasedConv1d,
    UnbiasedConv2d, UnbiasedConvTranspose1d, UnbiasedConvTranspose2d,
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, zeros},
    kernel::{
        convolution::{Convolution, Slide as Axis},
        windows::Windows,
    },
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// How windows slide along an axis.
///
/// ```
/// use attn::ops::Window;
///
/// let strided = Window { stride: 2, before: 1, after: 1, ..Window::default() };
/// assert_eq!(strided.output(3000, 3), 1500);
/// assert_eq!(strided.transposed_output(1500, 3), 2999);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The distance from one window to the next.
    pub stride: usize,
    /// The distance from one number of a window to the next.
    pub dilation: usize,
    /// How many zeros come before the axis. A transposed convolution leaves out so many numbers of its result.
    pub before: usize,
    /// How many come behind it.
    pub after: usize,
    /// How many numbers more a transposed convolution has behind its result: `output_padding` of PyTorch.
    pub more: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self::ONE
    }
}

impl Window {
    /// A stride and a dilation of 1, and no zeros.
    pub const ONE: Self = Self {
        stride: 1,
        dilation: 1,
        before: 0,
        after: 0,
        more: 0,
    };

    /// The indices from the first to the last number of a window.
    pub const fn reach(self, kernel: usize) -> usize {
        match kernel.checked_sub(1) {
            Some(steps) => steps.saturating_mul(self.dilation).saturating_add(1),
            None => 0,
        }
    }

    /// The number of windows of `kernel` numbers in an axis of this length, and in the zeros around it.
    pub const fn output(self, len: usize, kernel: usize) -> usize {
        let len = len.saturating_add(self.before).saturating_add(self.after);
        Windows::count_in(len, self.reach(kernel), self.stride)
    }

    /// The length of the result of a transposed convolution of an axis of this length.
    pub const fn transposed_output(self, len: usize, kernel: usize) -> usize {
        let reach = self.reach(kernel).saturating_add(self.more);
        let cut = self.before.saturating_add(self.after);
        slices::length_of_windows(len, reach, self.stride, cut)
    }

    fn along(self, kernel: usize, input: usize, output: usize) -> Axis {
        Axis {
            input,
            output,
            kernel,
            stride: self.stride,
            dilation: self.dilation,
            before: self.before,
        }
    }
}

/// What a convolution computes, but for its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The name of the operation.
    pub(crate) name: &'static str,
    /// The number of axes that it goes along.
    pub(crate) axes: usize,
    pub(crate) is_transposed: bool,
    /// The first two axes of the weight.
    pub(crate) weight: [usize; 2],
    /// The sizes of a window, and how it slides, along `height` and `width`.
    pub(crate) kernel: [usize; 2],
    pub(crate) windows: [Window; 2],
}

impl Plan {
    /// The lengths of the axes of the result, for an input with the channels last.
    fn result_of(&self, from: &[usize]) -> Vec<usize> {
        let along = from.len() - self.axes - 1;
        let axes = (2 - self.axes..2).zip(&from[along..]);
        axes.map(|(place, len)| self.length(place, *len)).collect()
    }

    /// The length of an axis of the result.
    fn length(&self, place: usize, len: usize) -> usize {
        let (window, kernel) = (self.windows[place], self.kernel[place]);
        match self.is_transposed {
            false => window.output(len, kernel),
            true => window.transposed_output(len, kernel),
        }
    }

    /// The convolution of tensors with these sizes. That of a transposed one is from its result to its input.
    ///
    /// # Panics
    /// If the result has other sizes.
    #[track_caller]
    pub(crate) fn of(&self, from: &[usize], to: &[usize], layout: Channels) -> Convolution {
        let name = self.name;
        let axes = self.axes;
        assert!(
            from.len() > axes && to.len() == from.len(),
            "{name}: {from:?} to {to:?} needs {axes} axes and channels"
        );
        let batch = from.len() - axes - 1;
        let (channels, along) = match layout {
            Channels::Last => (from.len() - 1, batch),
            Channels::First => (batch, batch + 1),
        };
        let groups = match self.is_transposed {
            false => from[channels].checked_div(self.weight[1]),
            true => to[channels].checked_div(self.weight[1]),
        };
        let groups = groups.unwrap_or(0).max(1);
        let mut sizes = from.to_vec();
        let mut slides = [Axis::NONE; 2];
        for axis in 0..axes {
            let place = 2 - axes + axis;
            let (window, kernel) = (self.windows[place], self.kernel[place]);
            assert!(
                window.stride > 0 && window.dilation > 0 && kernel > 0,
                "{name}: {window:?} with {kernel} numbers"
            );
            let len = from[along + axis];
            let new = self.length(place, len);
            sizes[along + axis] = new;
            slides[place] = match self.is_transposed {
                false => window.along(kernel, len, new),
                true => window.along(kernel, new, len),
            };
        }
        sizes[channels] = match self.is_transposed {
            false => self.weight[0],
            true => self.weight[1] * groups,
        };
        let of = match self.is_transposed {
            false => [from[channels], self.weight[0]],
            true => [sizes[channels], from[channels]],
        };
        assert!(
            of[0] == self.weight[1] * groups
                && of[1] == self.weight[0]
                && of[1].is_multiple_of(groups),
            "{name}: a weight of {:?} channels does not fit {} channels",
            self.weight,
            from[channels]
        );
        assert!(
            sizes == to,
            "{name}: windows of {:?} make {sizes:?} of {from:?}, not {to:?}",
            &self.kernel[2 - axes..]
        );
        Convolution {
            layout,
            images: from[..batch].iter().product(),
            input: of[0],
            output: of[1],
            groups,
            axes: slides,
        }
    }
}

/// A module that is a convolution.
pub trait Convolves<E: Dtype, D: Storage<E>> {
    /// The shape of the weight.
    type Weight: Shape;
    /// The shape of the bias.
    type Bias: Shape;

    /// The weight.
    fn weight(&self) -> &Tensor<Self::Weight, E, D>;

    /// The bias.
    fn bias(&self) -> Option<&Tensor<Self::Bias, E, D>>;

    /// The number of axes, and whether it is transposed.
    fn kind(&self) -> (usize, bool);

    /// How windows slide along `height` and `width`. Over one axis, that is `width`.
    fn windows(&self) -> [Window; 2];
}

/// The weight, the bias, and how windows slide, of any convolution.
pub(crate) struct Kernel<'a, W: Shape, B: Shape, E: Dtype, D: Storage<E>> {
    weight: &'a Tensor<W, E, D>,
    bias: Option<&'a Tensor<B, E, D>>,
    plan: Plan,
}

impl<'a, W: Shape, B: Shape, E: Dtype, D: Storage<E>> Kernel<'a, W, B, E, D> {
    fn new(
        weight: &'a Tensor<W, E, D>,
        bias: Option<&'a Tensor<B, E, D>>,
        (axes, is_transposed): (usize, bool),
        windows: [Window; 2],
    ) -> Self {
        let sizes = dims(dfdx::shapes::HasShape::shape(weight));
        Self {
            weight,
            bias,
            plan: Plan {
                name: match (axes, is_transposed) {
                    (1, false) => "conv1d",
                    (_, false) => "conv2d",
                    (1, true) => "conv_transpose1d",
                    (_, true) => "conv_transpose2d",
                },
                axes,
                is_transposed,
                weight: [sizes[0], sizes[1]],
                kernel: match axes {
                    1 => [1, sizes[2]],
                    _ => [sizes[2], sizes[3]],
                },
                windows,
            },
        }
    }

    pub(crate) fn of(layer: &'a impl Convolves<E, D, Weight = W, Bias = B>) -> Self {
        Self::new(layer.weight(), layer.bias(), layer.kind(), layer.windows())
    }

    /// The same on slices.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    pub(crate) fn read<T: Tape<E, D>>(
        &self,
        operation: &mut Operation<E, D, T>,
    ) -> Result<slices::Convolve<E>, D::Err>
    where
        E: Element,
        D: Backend<E>,
    {
        let bias = self.bias.map(|bias| operation.parameter(bias));
        Ok(slices::Convolve {
            weight: operation.parameter(self.weight)?,
            bias: bias.transpose()?,
            plan: self.plan,
        })
    }
}

/// Any convolution, in the fused or the composed form.
#[track_caller]
fn convolve<S: Shape, S2: Shape, W: Shape, B: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    kernel: &Kernel<'_, W, B, E, D>,
    channels: Channels,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    use dfdx::shapes::HasShape;

    let name = kernel.plan.name;
    let (from, sizes) = (dims(x.shape()), dims(&to));
    check_shape(name, x.shape())?;
    check_shape(name, &to)?;
    let of = kernel.plan.of(&from, &sizes, channels);
    if let Some(bias) = kernel.bias {
        let channels = if kernel.plan.is_transposed {
            of.input
        } else {
            of.output
        };
        assert_eq!(bias.shape().num_elements(), channels, "{name}: the bias");
    }
    if !fused {
        return Ok(composed::convolve(x, kernel, &of, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let layer = kernel.read(&mut operation)?;
    let mut y = zeros(to.num_elements());
    layer.compute(x.values(), &of, &mut y);
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        layer.differentiate(x.values(), &of, d_y, &mut x.target(), gradients)
    })?)
}

/// `Name, try_name: weight axes, windows, its own words;`
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident, $try_name:ident: $Rank:ident<$A:ident, $B:ident, $($K:ident),+>, $bias:ident $(<$of_bias:ident>)?,
        $windows:ty, |$window:ident| $both:expr, $kind:expr;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        #[doc = concat!("If [`", stringify!($try_name), "`] returns an error or panics.")]
        #[track_caller]
        pub fn $name<
            S: Shape,
            S2: Shape,
            const $A: usize,
            const $B: usize,
            $(const $K: usize,)+
            $(const $of_bias: usize,)?
            E: Element,
            D: Backend<E>,
            T: Tape<E, D>,
        >(
            x: Tensor<S, E, D, T>,
            weight: &Tensor<$Rank<$A, $B, $($K),+>, E, D>,
            bias: Option<&Tensor<Rank1<$bias>, E, D>>,
            window: $windows,
            channels: Channels,
            to: S2,
        ) -> Tensor<S2, E, D, T> {
            unwrap($try_name(x, weight, bias, window, channels, to))
        }

        #[doc = concat!("The fallible version of [`", stringify!($name), "`].")]
        ///
        /// # Errors
        /// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
        ///
        /// # Panics
        /// If `to` is not the shape of the result, if the channels are not those of the weight, or if a stride or a dilation is 0.
        #[track_caller]
        pub fn $try_name<
            S: Shape,
            S2: Shape,
            const $A: usize,
            const $B: usize,
            $(const $K: usize,)+
            $(const $of_bias: usize,)?
            E: Element,
            D: Backend<E>,
            T: Tape<E, D>,
        >(
            x: Tensor<S, E, D, T>,
            weight: &Tensor<$Rank<$A, $B, $($K),+>, E, D>,
            bias: Option<&Tensor<Rank1<$bias>, E, D>>,
            $window: $windows,
            channels: Channels,
            to: S2,
        ) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
            let kernel = Kernel::new(weight, bias, $kind, $both);
            convolve(D::FUSED, x, &kernel, channels, to)
        }
    )*};
}

functions! {
    /// A convolution over an axis: `y[n, p, o] = bias[o] + Σ x[n, p * stride + k * dilation - before, c] weight[o, c, k]`, with zeros around
    /// `x`. `to` is the shape of the result.
    ///
    /// `x` is `[.., len, channels]`, or `[.., channels, len]` with [`Channels::First`]; `weight` is `[O, I, K]`, where `I` is the number of
    /// channels of a group. So `x` has `I` channels, or `groups * I`.
    ///
    /// PyTorch: `torch.nn.functional.conv1d(x, weight, bias, stride, padding, dilation, groups)`, whose channels come first.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::{Channels, Window, conv1d}};
    ///
    /// let dev = Cpu::default();
    /// let x: Tensor<Rank2<4, 1>, f32, _> = dev.tensor([[1.0], [2.0], [3.0], [4.0]]);
    /// let weight = dev.tensor([[[1.0, 10.0]]]);
    /// let causal = Window { before: 1, ..Window::default() };
    /// let y = conv1d(x, &weight, None::<&Tensor<Rank1<1>, _, _>>, causal, Channels::Last, (Const::<4>, Const::<1>));
    /// assert_eq!(y.array(), [[10.0], [21.0], [32.0], [43.0]]);
    /// ```
    conv1d, try_conv1d: Rank3<O, I, K>, O, Window, |window| [Window::ONE, window], (1, false);

    /// A convolution over two axes, as [`conv1d`] over one. `x` is `[.., height, width, channels]`, or `[.., channels, height, width]` with
    /// [`Channels::First`].
    ///
    /// PyTorch: `torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups)`, whose channels come first.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::{Channels, Window, conv2d}};
    ///
    /// let dev = Cpu::default();
    /// let image: Tensor<Rank3<3, 32, 32>, f32, _> = dev.sample_normal();
    /// let weight: Tensor<Rank4<8, 3, 16, 16>, f32, _> = dev.sample_normal();
    /// let bias: Tensor<Rank1<8>, f32, _> = dev.zeros();
    /// let patches = Window { stride: 16, ..Window::default() };
    /// let y = conv2d(image, &weight, Some(&bias), [patches; 2], Channels::First, (Const::<8>, Const::<2>, Const::<2>));
    /// ```
    conv2d, try_conv2d: Rank4<O, I, H, W>, O, [Window; 2], |windows| windows, (2, false);

    /// A transposed convolution over an axis, the derivative of [`conv1d`] with respect to its input:
    /// `y[n, p * stride + k * dilation - before, o] += x[n, p, c] weight[c, o, k]`, and the bias.
    ///
    /// `weight` is `[I, O, K]`, where `O` is the number of channels of the result in a group.
    ///
    /// PyTorch: `torch.nn.functional.conv_transpose1d(x, weight, bias, stride, padding, output_padding, groups, dilation)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::{Channels, Window, conv_transpose1d}};
    ///
    /// let dev = Cpu::default();
    /// let x: Tensor<Rank2<2, 1>, f32, _> = dev.tensor([[1.0], [2.0]]);
    /// let weight = dev.tensor([[[1.0, 10.0]]]);
    /// let twice = Window { stride: 2, ..Window::default() };
    /// let y = conv_transpose1d(x, &weight, None::<&Tensor<Rank1<1>, _, _>>, twice, Channels::Last, (Const::<4>, Const::<1>));
    /// assert_eq!(y.array(), [[1.0], [10.0], [2.0], [20.0]]);
    /// ```
    conv_transpose1d, try_conv_transpose1d: Rank3<I, O, K>, B<B>, Window, |window| [Window::ONE, window], (1, true);

    /// A transposed convolution over two axes, as [`conv_transpose1d`] over one.
    ///
    /// PyTorch: `torch.nn.functional.conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation)`.
    conv_transpose2d, try_conv_transpose2d: Rank4<I, O, H, W>, B<B>, [Window; 2], |windows| windows, (2, true);
}

impl<T> Pass<'_, T> {
    /// A convolution with the parameters of a layer, such as [`Conv1d`](crate::nn::Conv1d): [`conv1d`], [`conv2d`],
    /// [`conv_transpose1d`] or [`conv_transpose2d`].
    ///
    /// # Errors
    /// The errors of [`try_conv1d`].
    ///
    /// # Panics
    /// The panics of [`try_conv1d`].
    #[track_caller]
    pub fn convolve<S: Shape, S2: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &impl Convolves<E, D>,
        channels: Channels,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        let kernel = Kernel::of(layer);
        self.run(x, |fused, x| convolve(fused, x, &kernel, channels, to))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use super::Plan;
    use crate::{
        Element,
        fused::{
            GradTarget, Gradients, Operand, VisitSlot, VisitWeights, WantsGradient, WeightVisitor,
        },
        kernel::convolution::{self as kernel, Channels, Convolution, Start},
    };

    /// A convolution with its parameters.
    pub struct Convolve<E: Element> {
        pub(super) weight: Operand<E>,
        pub(super) bias: Option<Operand<E>>,
        pub(super) plan: Plan,
    }

    impl<E: Element> WantsGradient for Convolve<E> {
        fn slots(&self, visit: VisitSlot<'_>) {
            self.weight.slots(visit);
            self.bias.slots(visit);
        }
    }

    impl<E: Element> VisitWeights<E> for Convolve<E> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            self.weight.visit_weights(visit);
            self.bias.visit_weights(visit);
        }
    }

    impl<E: Element> Convolve<E> {
        /// The convolution of `x`. The sizes are those of the axes of `x` and of `y`.
        pub fn forward(&self, x: &[E], sizes: [&[usize]; 2], channels: Channels, y: &mut [E]) {
            self.compute(x, &self.plan.of(sizes[0], sizes[1], channels), y);
        }

        /// Its derivative.
        pub fn backward(
            &self,
            x: &[E],
            sizes: [&[usize]; 2],
            channels: Channels,
            d_y: &[E],
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            let of = self.plan.of(sizes[0], sizes[1], channels);
            self.differentiate(x, &of, d_y, d_x, gradients);
        }

        /// The convolution of places `[len, channels]`, without zeros around them, to as many windows as lie in them.
        ///
        /// # Panics
        /// If there are not so many.
        pub fn inside(&self, x: &[E], windows: usize, y: &mut [E]) {
            let mut plan = self.plan;
            for window in &mut plan.windows {
                (window.before, window.after) = (0, 0);
            }
            let out = plan.weight[0];
            let len = windows + plan.windows[1].reach(plan.kernel[1]) - 1;
            let sizes = [[len, x.len() / len.max(1)], [windows, out]];
            let of = plan.of(&sizes[0], &sizes[1], Channels::Last);
            let start = Start::bias(self.bias.as_ref().map(Operand::values));
            kernel::forward(x, self.weight.values(), &of, start, y);
        }

        pub(super) fn compute(&self, x: &[E], of: &Convolution, y: &mut [E]) {
            let start = Start::bias(self.bias.as_ref().map(Operand::values));
            match self.plan.is_transposed {
                false => kernel::forward(x, self.weight.values(), of, start, y),
                true => kernel::input_gradient(x, self.weight.values(), of, start, y),
            }
        }

        pub(super) fn differentiate(
            &self,
            x: &[E],
            of: &Convolution,
            d_y: &[E],
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            if self.weight.is_wanted() {
                let d_weight = self.weight.gradient(gradients);
                match self.plan.is_transposed {
                    false => kernel::add_weight_gradient(x, d_y, of, d_weight),
                    true => kernel::add_weight_gradient(d_y, x, of, d_weight),
                }
            }
            if let Some(bias) = self.bias.as_ref().filter(|bias| bias.is_wanted()) {
                let d_bias = bias.gradient(gradients);
                kernel::add_bias_gradient(d_y, of.layout, of.images, d_bias);
            }
            let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
                return;
            };
            let w = self.weight.values();
            match self.plan.is_transposed {
                false => kernel::input_gradient(d_y, w, of, into.into(), d_x),
                true => kernel::forward(d_y, w, of, into.into(), d_x),
            }
        }
    }

    /// The length of an axis in which so many windows lie, without the numbers that are cut off.
    pub const fn length_of_windows(count: usize, reach: usize, stride: usize, cut: usize) -> usize {
        count
            .saturating_mul(stride)
            .saturating_add(reach)
            .saturating_sub(stride.saturating_add(cut))
    }

    /// The least number of windows of which something is left.
    pub const fn least_windows(reach: usize, stride: usize, cut: usize) -> usize {
        let missing = stride.saturating_add(cut).saturating_sub(reach);
        match stride {
            0 => 0,
            stride => missing.div_ceil(stride),
        }
    }
}
