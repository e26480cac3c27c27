"""Convolutions over one and two axes, and transposed ones."""

import torch
import torch.nn.functional as F

from case import case


def conv(c, name, x, out, kernel, bias=True, groups=1, last=True, transposed=False, **keys):
    """A convolution as a layer of the language: the channels are last, or come directly before the axes."""
    axes = len(kernel)
    first = x.movedim(-1, -axes - 1) if last else x
    channels = first.shape[-axes - 1]
    shape = (channels, out // groups) if transposed else (out, channels // groups)
    weight = c.weight(name, *shape, *kernel)
    bias = c.param(f"{name}.bias", out) if bias else None
    function = [F.conv1d, F.conv2d, F.conv_transpose1d, F.conv_transpose2d][axes - 1 + 2 * transposed]
    y = function(first, weight, bias, groups=groups, **keys)
    return y.movedim(-axes - 1, -1) if last else y


def causal(c, name, x, out, kernel, dilation, **keys):
    padded = F.pad(x, (0, 0, dilation * (kernel - 1), 0))
    return conv(c, name, padded, out, (kernel,), dilation=dilation, **keys)


@case
def strided_along_a_sequence(c):
    x = c.floats("x", 2, 9, 6)
    a = conv(c, "a", x, 4, (3,), stride=2, padding=1)
    b = conv(c, "b", x, 8, (3,), stride=2, padding=1, groups=2, bias=False)
    return torch.cat((a, b), 2), conv(c, "wide", x, 4, (2,), stride=4)


@case
def as_long_as_the_sequence(c):
    x = c.floats("x", 2, 9, 6)
    a = conv(c, "a", x, 5, (4,), padding="same", dilation=2)
    b = conv(c, "b", x, 12, (3,), padding="same", groups=6)
    d = conv(c, "d", x, 6, (5,), padding="same", groups=6, bias=False)
    past = causal(c, "e", x, 6, 3, 2, groups=3)
    return torch.cat((a, b, d), 2), torch.cat((past, causal(c, "f", x, 6, 4, 1, groups=6)), 2)


@case
def front_of_whisper(c):
    """The first layers of the encoder, with small sizes: https://github.com/openai/whisper/blob/main/whisper/model.py"""
    x = c.floats("mel", 2, 5, 12)
    x = F.gelu(conv(c, "conv1", x, 6, (3,), padding=1, last=False))
    x = F.gelu(conv(c, "conv2", x, 6, (3,), stride=2, padding=1, last=False))
    return x.permute(0, 2, 1)


@case
def over_images(c):
    x = c.floats("x", 2, 4, 9, 8)
    patches = conv(c, "patches", x, 6, (3, 4), stride=(3, 4), last=False)
    a = conv(c, "a", x, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 3), groups=2, last=False)
    return patches, torch.tanh(a)


@case
def over_images_with_the_channels_last(c):
    x = c.floats("x", 2, 5, 6, 4)
    a = conv(c, "a", x, 6, (3, 3), padding="same")
    b = conv(c, "b", x, 8, (3, 2), padding="same", dilation=2, groups=4, bias=False)
    return torch.cat((a, b), 3), conv(c, "d", x, 4, (5, 3), stride=2, padding=(0, 1), groups=4)


@case
def transposed_along_a_sequence(c):
    x = c.floats("x", 2, 5, 6)
    a = conv(c, "a", x, 4, (3,), stride=2, padding=1, output_padding=1, transposed=True)
    b = conv(c, "b", x, 6, (4,), stride=2, padding=1, groups=2, bias=False, transposed=True)
    d = conv(c, "d", x, 6, (3,), dilation=2, groups=6, transposed=True)
    return torch.cat((a, b), 2), d


@case
def transposed_over_images(c):
    x = c.floats("x", 2, 4, 3, 5)
    a = conv(c, "a", x, 6, (2, 3), stride=(2, 3), groups=2, last=False, transposed=True)
    b = conv(c, "b", x, 3, (3, 2), stride=2, padding=(1, 0), output_padding=(1, 0), dilation=(2, 1), last=False, transposed=True)
    return a, b


@case
def other_orders_of_axes(c):
    x = c.floats("x", 2, 4, 3, 5)
    rows = conv(c, "rows", x.permute(0, 3, 1, 2).reshape(10, 4, 3), 6, (2,), padding=1, last=False)
    turned = conv(c, "turned", x.transpose(2, 3), 4, (3, 2), last=False).transpose(2, 3)
    return rows.reshape(2, 5, 6, 4).permute(0, 2, 3, 1), turned
