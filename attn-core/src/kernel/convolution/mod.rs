//! Convolutions over one or two axes, and their derivatives.
//!
//! ```text
//! y[n, p, o] = b[o] + Σ_(k, c) x[n, p * stride + k * dilation - before, c] w[o, c, k]
//! ```
//!
//! for the channels `c` of the group of `o`. What an output reads is its patch. Patches are copied to the rows, or the columns, of a
//! matrix, as many of them at a time as a cache holds, and the matrix is multiplied with the weights. With the channels first, they are
//! copied to the panels of a product with a [packed right side](super::packed) instead, and are in no matrix: see `is_packed`.
//!
//! The derivative with respect to `x` is such a convolution of the gradients where windows move by one place. Otherwise the product of gradients and weights
//! is added where the numbers of its patches stand. If a group has one channel there is no product: see [`depthwise`].
//!
//! That derivative is a transposed convolution, so three functions are enough for both.
//!
//! The weights are stored as `[out, in / groups, height, width]`, as in PyTorch: this is `torch.nn.functional.conv2d(x, w, b)`.

mod depthwise;
mod forward;
mod input_gradient;
mod patches;
mod runs;
#[cfg(test)]
mod tests;
mod weight_gradient;

use std::ops::Range;

use super::compiled::compiled;
pub use super::multiply::Start;
use super::parallel::FEW_MULTIPLICATIONS;
use super::{Buffer, Pooled};

/// The numbers of patches in a matrix: a part of a second-level cache.
const PANEL: usize = 1 << 18;
/// The least number of patches in a matrix, and a factor of others. With fewer, reading the weights costs more than the products, which are of as
/// many columns at a time.
const FEW_PATCHES: usize = 64;
/// The largest number.
const MANY_PATCHES: usize = 512;
/// The channels of a product with packed patches.
const FEW_CHANNELS: usize = 16;
/// The outputs of an image in such a product.
const FEW_OUTPUTS: usize = 32;
/// The parts into which work is cut, if that leaves enough patches for each.
const PARTS: usize = 16;

/// How windows slide along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slide {
    /// The length of the axis of the input.
    pub input: usize,
    /// The length of the axis of the output.
    pub output: usize,
    /// The numbers of a window.
    pub kernel: usize,
    /// The distance from one window to the next.
    pub stride: usize,
    /// The distance from one number of a window to the next.
    pub dilation: usize,
    /// How many zeros come before the axis.
    pub before: usize,
}

impl Slide {
    /// An axis of length 1 that is not there.
    pub const NONE: Self = Self {
        input: 1,
        output: 1,
        kernel: 1,
        stride: 1,
        dilation: 1,
        before: 0,
    };

    /// The index of the input that a window reads at a place, if it is none of the zeros around the input.
    fn source(&self, window: usize, place: usize) -> Option<usize> {
        let index = window * self.stride + place * self.dilation;
        index.checked_sub(self.before).filter(|i| *i < self.input)
    }

    /// The windows that read one of these indices at a place.
    fn around(&self, indices: &Range<usize>, place: usize) -> Range<usize> {
        let first = |index: usize| {
            let index = (index + self.before).saturating_sub(place * self.dilation);
            index.div_ceil(self.stride).min(self.output)
        };
        first(indices.start)..first(indices.end)
    }

    /// Which of these windows read an index of the input at a place, and the index of the first of them, if there are any.
    fn inside(&self, windows: &Range<usize>, place: usize) -> Option<(usize, Range<usize>)> {
        let all = self.around(&(0..self.input), place);
        let some = windows.start.max(all.start)..windows.end.min(all.end);
        let source = self.source(some.start, place)?;
        (!some.is_empty()).then_some((source, some))
    }

    /// The same axis, if windows move by one place, for the derivative with respect to the input: from outputs to inputs, `i = p + k dilation - before` is
    /// `p = i + k' dilation - before'`, where `k'` counts from the other end of the window.
    fn mirrored(&self) -> Option<Self> {
        let reach = self.kernel.checked_sub(1)? * self.dilation;
        let before = reach.checked_sub(self.before)?;
        (self.stride == 1).then_some(Self {
            input: self.output,
            output: self.input,
            before,
            ..*self
        })
    }

    /// The windows that read one of these indices at any place, and perhaps others between them.
    fn around_any(&self, indices: &Range<usize>) -> Range<usize> {
        let last = self.kernel.saturating_sub(1);
        self.around(indices, last).start..self.around(indices, 0).end
    }
}

/// Where the channels stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// `[images, height, width, channels]`
    Last,
    /// `[images, channels, height, width]`
    First,
}

/// A convolution of images. Over one axis, the images have a height of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Where the channels stand, of inputs and outputs.
    pub layout: Channels,
    /// The number of images.
    pub images: usize,
    /// The channels of the input.
    pub input: usize,
    /// The channels of the output.
    pub output: usize,
    /// The groups: each has a part of the channels of the input and a part of those of the output.
    pub groups: usize,
    /// The axes `height` and `width`.
    pub axes: [Slide; 2],
}

impl Convolution {
    fn inputs(&self) -> usize {
        self.axes[0].input * self.axes[1].input
    }

    fn outputs(&self) -> usize {
        self.axes[0].output * self.axes[1].output
    }

    /// The places of a window.
    fn places(&self) -> usize {
        self.axes[0].kernel * self.axes[1].kernel
    }

    /// The channels of the input in a group.
    fn input_of_group(&self) -> usize {
        self.input / self.groups
    }

    /// The channels of the output in a group.
    fn output_of_group(&self) -> usize {
        self.output / self.groups
    }

    /// The numbers of a patch of one group.
    fn patch(&self) -> usize {
        self.places() * self.input_of_group()
    }

    /// The axes of the derivative with respect to the input, if it is a convolution.
    fn mirrored_axes(&self) -> Option<[Slide; 2]> {
        let [height, width] = &self.axes;
        Some([height.mirrored()?, width.mirrored()?])
    }

    fn is_depthwise(&self) -> bool {
        self.input == self.groups
    }

    /// Whether the product of a group is one with packed patches, for images with the channels first. It does not depend on the number of images, so
    /// the bits of one do not.
    ///
    /// With few channels or few multiplications for each number that is packed, `gemm` is as fast. If a window is one number, it reads the image where
    /// it stands.
    fn is_packed(&self) -> bool {
        self.output_of_group() >= FEW_CHANNELS
            && self.patch() >= FEW_CHANNELS
            && self.outputs() >= FEW_OUTPUTS
            && self.places() > 1
    }

    /// The number of patches in a matrix, of so many.
    fn patches_at_once(&self, all: usize) -> usize {
        let most = (PANEL / self.patch().max(1)).clamp(FEW_PATCHES, MANY_PATCHES);
        let most = most / FEW_PATCHES * FEW_PATCHES;
        let work = self.patch() * self.output_of_group();
        match all * self.images * work <= FEW_MULTIPLICATIONS {
            true => most,
            false => {
                let part = (all * self.images).div_ceil(PARTS);
                part.next_multiple_of(FEW_PATCHES).clamp(FEW_PATCHES, most)
            }
        }
    }

    /// `[out, in, places]` with the places before the channels of the input: `[out, places, in]`.
    fn places_first<E: Pooled>(&self, w: &[E]) -> Buffer<E> {
        let (channels, places) = (self.input_of_group(), self.places());
        let mut to = Buffer::uninit(w.len());
        let patch = self.patch().max(1);
        for (to, w) in to.chunks_mut(patch).zip(w.chunks(patch)) {
            for place in 0..places {
                let to = &mut to[place * channels..][..channels];
                let w = w[place..].iter().step_by(places);
                to.iter_mut().zip(w).for_each(|(to, w)| *to = *w);
            }
        }
        to
    }

    #[track_caller]
    fn assert_lengths(&self, x: usize, w: usize, y: usize) {
        assert!(
            self.groups > 0
                && self.input.is_multiple_of(self.groups)
                && self.output.is_multiple_of(self.groups)
                && self.axes.iter().all(|axis| axis.stride > 0),
            "{self:?} has no such groups or windows"
        );
        let expected = [
            self.images * self.inputs() * self.input,
            self.output * self.patch(),
            self.images * self.outputs() * self.output,
        ];
        assert!(
            [x, w, y] == expected,
            "{x} and {y} numbers and {w} weights are not those of {self:?}"
        );
    }
}

compiled! {
    Convolutions:

    /// The convolution, with a bias, or added to the numbers of `y`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn forward<E>(x: &[E], w: &[E], of: &Convolution, start: Start<'_, E>, y: &mut [E]) {
        of.assert_lengths(x.len(), w.len(), y.len());
        assert_bias(start, of.output);
        if of.is_depthwise() {
            depthwise::forward(x, w, of, start, y);
        } else {
            forward::forward(x, w, of, start, y);
        }
    }

    /// The derivative with respect to `x`, with a bias, or added to the numbers of `d_x`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn input_gradient<E>(d_y: &[E], w: &[E], of: &Convolution, start: Start<'_, E>, d_x: &mut [E]) {
        of.assert_lengths(d_x.len(), w.len(), d_y.len());
        assert_bias(start, of.input);
        if of.is_depthwise() {
            depthwise::input_gradient(d_y, w, of, start, d_x);
        } else {
            input_gradient::input_gradient(d_y, w, of, start, d_x);
        }
    }

    /// Adds the derivative with respect to the weights.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn add_weight_gradient<E>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
        of.assert_lengths(x.len(), d_w.len(), d_y.len());
        if of.is_depthwise() {
            depthwise::add_weight_gradient(x, d_y, of, d_w);
        } else {
            weight_gradient::add(x, d_y, of, d_w);
        }
    }

    /// Adds the sums of the channels of `d`, of so many images and places: the derivative with respect to the bias.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn add_bias_gradient<E>(d: &[E], layout: Channels, images: usize, d_b: &mut [E]) {
        weight_gradient::add_sums(d, layout, images, d_b);
    }
}

#[track_caller]
fn assert_bias<E>(start: Start<'_, E>, channels: usize) {
    if let Start::Row(bias) = start {
        assert_eq!(bias.len(), channels, "a bias for each channel");
    }
}
