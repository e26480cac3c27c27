"""Parts of values, values side by side, axes in another order and of other sizes, and products over axes."""

import torch
import torch.nn.functional as F

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


@case
def axes_in_parts_and_in_one(c):
    x = c.floats("x", 2, 3, 8)
    b, s = x.shape[:2]
    parts = x.view(b, s, 2, 4).permute(0, 2, 1, 3)
    return torch.tanh(parts), parts.transpose(2, 3).reshape(b, 8, s)


@case
def stacked(c):
    x, y = c.floats("x", 2, 3, 4), c.floats("y", 2, 3, 4)
    return torch.stack([x, x * y, y], 2)


@case
def expanded_and_marked(c):
    x, w = c.floats("x", 2, 3, 4), c.weight("w", 1, 4)
    keep = c.marks("keep", 2, 3).bool()
    time = c.ids("time", 5, 2)[:, None, None]
    wide = w.expand(2, 3, -1)
    return torch.softmax(wide, 1) * x, torch.where(keep[..., None] | (time < 2), x, wide) * (time + keep[..., None])


@case
def padded_and_shifted(c):
    x = c.floats("x", 2, 3, 4)
    return F.pad(x, (1, 2), value=0.5), F.pad(x, (0, 0, 1, -1)) * F.pad(x, (0, 0, -1, 1))


@case
def sliding_windows(c):
    x = c.floats("x", 2, 7, 4)
    return torch.tanh(x.unfold(1, 3, 2)).transpose(2, 3)


@case
def products_over_axes(c):
    x, y, w = c.floats("x", 2, 3, 4), c.floats("y", 2, 5, 4), c.weight("w", 4, 6)
    return torch.einsum("bsd,de->bse", x, w), torch.einsum("bsd,bkd->bks", x, y)


@case
def products_of_three_and_with_itself(c):
    x, y = c.floats("x", 2, 3, 4), c.floats("y", 2, 4)
    return torch.einsum("bsd,bkd->bsk", x, x), torch.einsum("bsd,bd,bsd->b", x, y, x)
