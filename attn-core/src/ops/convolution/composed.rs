//! The composed form, with dfdx's operations: patches are gathered, and multiplied with the weights as a matrix for each group.

use dfdx::{
    shapes::{Axis, HasShape, Shape},
    tensor::{PutTape, Tape, Tensor},
    tensor_ops::{Device, TryAdd, TryMatMul},
};

use super::Kernel;
use crate::{
    Element,
    composed::{depend, is_empty, reshape, zeros_after_both},
    kernel::convolution::{Channels, Convolution},
    ops::{pad::composed::pad, shape::gather},
};

/// Any convolution.
///
/// # Errors
/// If dfdx fails.
pub(super) fn convolve<
    S: Shape,
    S2: Shape,
    W: Shape,
    B: Shape,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Tensor<S, E, D, T>,
    kernel: &Kernel<'_, W, B, E, D>,
    of: &Convolution,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, D::Err> {
    let weight = kernel.weight.retaped::<T>();
    let product = match is_empty(&to) || is_empty(weight.shape()) || is_empty(x.shape()) {
        true => zeros_after_both(x, weight, to)?,
        false => product(x, weight, of, kernel.plan.is_transposed, to)?,
    };
    let Some(bias) = kernel.bias else {
        return Ok(product);
    };
    let bias = bias.retaped::<T>();
    if is_empty(&to) {
        let (product, tape) = dfdx::tensor::SplitTape::split_tape(product);
        return Ok(product.put_tape(dfdx::tensor::Merge::merge(tape, depend(bias))));
    }
    let view = View::of(of, kernel.plan.is_transposed);
    product.try_add(gather(bias, |index| view.place(index).channel, to)?)
}

fn product<S: Shape, S2: Shape, W: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    weight: Tensor<W, E, D, T>,
    of: &Convolution,
    is_transposed: bool,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, D::Err> {
    let view = View::of(of, is_transposed);
    let groups = of.groups;
    let [inputs, outputs] = view.channels.map(|channels| channels / groups);
    let kernel = of.axes.map(|axis| axis.kernel);
    let places = kernel[0] * kernel[1];
    let (rows, patch) = (to.num_elements() / (groups * outputs), places * inputs);

    // Behind the numbers of `x` stands the zero that is around it.
    let zero = x.shape().num_elements();
    let x = pad(reshape(x, (zero,))?, Axis::<0>, 0, 0.0, (zero + 1,))?;
    let source = |index: usize| {
        let (group, row) = (index / patch / rows, index / patch % rows);
        let (channel, place) = (index % patch / places, index % places);
        view.input(
            row,
            group * inputs + channel,
            [place / kernel[1], place % kernel[1]],
        )
        .unwrap_or(zero)
    };
    let patches = gather(x, source, (groups, rows, patch))?;
    let of_weight = |index: usize| {
        let (group, at, output) = (
            index / outputs / patch,
            index / outputs % patch,
            index % outputs,
        );
        let (input, place) = (at / places, at % places);
        let [first, second] = match is_transposed {
            false => [group * outputs + output, input],
            true => [group * inputs + input, output],
        };
        let second_size = if is_transposed { outputs } else { inputs };
        (first * second_size + second) * places + place
    };
    let weight = gather(weight, of_weight, (groups, patch, outputs))?;
    let y = patches.try_matmul(weight)?;
    let of_result = |index: usize| {
        let Place { channel, row } = view.place(index);
        let (group, output) = (channel / outputs, channel % outputs);
        (group * rows + row) * outputs + output
    };
    gather(y, of_result, to)
}

/// A convolution from its input to its result: those of a transposed one change places.
struct View<'a> {
    of: &'a Convolution,
    is_transposed: bool,
    /// The channels of the input and of the result.
    channels: [usize; 2],
    /// The lengths of the axes of the input and of the result.
    lengths: [[usize; 2]; 2],
}

/// A channel of a place of the result.
struct Place {
    channel: usize,
    /// The place among those of all images.
    row: usize,
}

impl<'a> View<'a> {
    fn of(of: &'a Convolution, is_transposed: bool) -> Self {
        let mut channels = [of.input, of.output];
        let mut lengths = [
            of.axes.map(|axis| axis.input),
            of.axes.map(|axis| axis.output),
        ];
        if is_transposed {
            channels.reverse();
            lengths.reverse();
        }
        Self {
            of,
            is_transposed,
            channels,
            lengths,
        }
    }

    fn place(&self, index: usize) -> Place {
        let channels = self.channels[1];
        let places = self.lengths[1][0] * self.lengths[1][1];
        match self.of.layout {
            Channels::Last => Place {
                channel: index % channels,
                row: index / channels,
            },
            Channels::First => Place {
                channel: index / places % channels,
                row: index / places / channels * places + index % places,
            },
        }
    }

    /// The index of what a place of the result reads of a channel, if that is not beside the input.
    fn input(&self, row: usize, channel: usize, kernel: [usize; 2]) -> Option<usize> {
        let [from, to] = self.lengths;
        let (image, line, column) = (row / to[1] / to[0], row / to[1] % to[0], row % to[1]);
        let index = |axis: usize, at: usize| {
            let slide = self.of.axes[axis];
            let offset = kernel[axis] * slide.dilation;
            let index = match self.is_transposed {
                false => (at * slide.stride + offset).checked_sub(slide.before)?,
                true => {
                    let distance = (at + slide.before).checked_sub(offset)?;
                    if !distance.is_multiple_of(slide.stride) {
                        return None;
                    }
                    distance / slide.stride
                }
            };
            Some(index).filter(|index| *index < from[axis])
        };
        let at = [index(0, line)?, index(1, column)?];
        let channels = self.channels[0];
        Some(match self.of.layout {
            Channels::Last => ((image * from[0] + at[0]) * from[1] + at[1]) * channels + channel,
            Channels::First => ((image * channels + channel) * from[0] + at[0]) * from[1] + at[1],
        })
    }
}
