//! The keys, and how calls are written.

use super::lower::{lower_conv_transpose1d, lower_conv_transpose2d, lower_conv1d, lower_conv2d};
use crate::ops::pad::TO;
use crate::ops::{Lower, Operation, layer};
use crate::spec::keys::{Key, KeyKind, Word, plain};

const AXIS: Key = Key {
    name: "axis",
    kind: KeyKind::Axes,
    default: "required",
    doc: "Along which axes.",
};

const CHANNELS: Key = Key {
    name: "channels",
    kind: KeyKind::Axes,
    default: "the last axis",
    doc: "The axis of the channels, whose size is constant.",
};

const SAME: Word = plain(
    "same",
    "As many zeros as make the result as long as the operand, one more behind it if their number is odd.",
);
pub(super) const CAUSAL: Word = plain(
    "causal",
    "All zeros before the axis: no result reads later places.",
);

const GROUPS: Key = layer::size(
    "groups",
    "`1`",
    "The number of groups, of channels of the operand and of the result; the number of channels makes it depthwise.",
);

const fn sizes(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    padding(name, default, doc, &[])
}

const fn padding(
    name: &'static str,
    default: &'static str,
    doc: &'static str,
    words: &'static [Word],
) -> Key {
    Key {
        name,
        kind: KeyKind::SizePerAxis(words),
        default,
        doc,
    }
}

const OUT: Key = layer::size("out", "required", "The channels of the result.");
const KERNEL: Key = sizes("kernel", "required", "The length of a window.");
const STRIDE: Key = sizes("stride", "`1`", "The distance from one window to the next.");
const DILATION: Key = sizes(
    "dilation",
    "`1`",
    "The distance from one number of a window to the next.",
);
const BIAS: Key = layer::bias("`true`", "Whether a learned bias is added.");
const INIT: Key = layer::init(
    "uniform within `1 / sqrt(numbers of a window)`",
    "Distribution of the weight before training. That of the bias stays.",
);
const OUTPUT_PADDING: Key = sizes(
    "output_padding",
    "`0`",
    "How many numbers more the result has at its end.",
);
const CUT: Key = sizes(
    "padding",
    "`0`",
    "How many numbers are left out at both ends of the result.",
);

const OVER_ONE_AXIS: [Key; 11] = with_padding(padding(
    "padding",
    "`0`",
    "How many zeros stand at both ends of the axis.",
    &[SAME, CAUSAL],
));
const OVER_TWO_AXES: [Key; 11] = with_padding(padding(
    "padding",
    "`0`",
    "How many zeros stand at both ends of the axes.",
    &[SAME],
));

const fn with_padding(padding: Key) -> [Key; 11] {
    [
        AXIS, OUT, KERNEL, STRIDE, padding, DILATION, GROUPS, CHANNELS, BIAS, INIT, TO,
    ]
}

pub(in crate::ops) static CONV1D: Operation = Operation {
    name: "conv1d",
    keys: &OVER_ONE_AXIS,
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, in]` to `[.., (a + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1, out]`",
    doc: "A convolution over an axis. PyTorch: `torch.nn.Conv1d`, whose channels come before the axis.",
    lower: Lower::Operands(1..=1, &lower_conv1d),
};

pub(in crate::ops) static CONV2D: Operation = Operation {
    name: "conv2d",
    keys: &OVER_TWO_AXES,
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, b, in]` to `[.., new, new, out]`",
    doc: "A convolution over two axes: `conv2d::<[height, width], out = 64, kernel = 3, channels = c>(x)`. PyTorch: `torch.nn.Conv2d`, whose channels come before the axes.",
    lower: Lower::Operands(1..=1, &lower_conv2d),
};

const TRANSPOSED: &[Key] = &[
    AXIS,
    OUT,
    KERNEL,
    STRIDE,
    CUT,
    OUTPUT_PADDING,
    DILATION,
    GROUPS,
    CHANNELS,
    BIAS,
    INIT,
    TO,
];

pub(in crate::ops) static CONV_TRANSPOSE1D: Operation = Operation {
    name: "conv_transpose1d",
    keys: TRANSPOSED,
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, in]` to `[.., (a - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - 2 * padding, out]`",
    doc: "The derivative of a convolution over an axis, as a layer: a longer axis. PyTorch: `torch.nn.ConvTranspose1d`.",
    lower: Lower::Operands(1..=1, &lower_conv_transpose1d),
};

pub(in crate::ops) static CONV_TRANSPOSE2D: Operation = Operation {
    name: "conv_transpose2d",
    keys: TRANSPOSED,
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, b, in]` to `[.., new, new, out]`",
    doc: "The same over two axes. PyTorch: `torch.nn.ConvTranspose2d`.",
    lower: Lower::Operands(1..=1, &lower_conv_transpose2d),
};
