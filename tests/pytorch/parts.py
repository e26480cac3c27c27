"""Parts of values, values side by side, and axes in another order."""

import torch

from case import case


@case
def concatenated(c):
    x, y = c.floats("x", 2, 3, 4), c.floats("y", 2, 3, 2)
    return torch.cat([x, y, 2 * x], -1)


@case
def concatenated_along_other_axes(c):
    x, token = c.floats("x", 2, 3, 4), c.weight("token", 1, 4)
    return torch.cat([token.expand(2, 1, 4), x, x[:, 1:]], 1)


@case
def permuted(c):
    x = c.floats("x", 2, 3, 4)
    return x.permute(2, 0, 1) * 2, torch.tanh(x.permute(1, 0, 2))


@case
def split_in_parts(c):
    x = c.floats("x", 2, 6, 4)
    a, b = x.chunk(2, -1)
    d, e, f = (a * torch.sigmoid(b)).chunk(3, 1)
    return d - e * f


@case
def indices_and_ranges(c):
    x = c.floats("x", 2, 5, 4)
    middle = x[:, 1:3, 2:] * x[:, -2:, :2] + x[:, 3:, 1:3]
    return x[:, 0] * x[:, -1] - (x[:, -2, 1] * x[0, 2].sum())[:, None], middle
