"""Numbers in place of axes, softmax along axes, and pooling."""

import torch

from case import case

# The axes of `x: [batch, seq, d]`, one and two of them.
AXES = [0, 1, 2, (0, 1), (1, 2), (0, 2)]


def over_axes(c, reduce):
    """The sum over all choices of axes, each repeated along what it lacks, times another number."""
    x = c.floats("x", 2, 3, 4)
    return sum(number * x * reduce(x, axes) for number, axes in enumerate(AXES, 1))


@case
def sums(c):
    return over_axes(c, lambda x, axes: x.sum(axes, keepdim=True))


@case
def means(c):
    return over_axes(c, lambda x, axes: x.mean(axes, keepdim=True))


@case
def maxima(c):
    return over_axes(c, lambda x, axes: x.amax(axes, keepdim=True))


@case
def minima(c):
    return over_axes(c, lambda x, axes: x.amin(axes, keepdim=True))


@case
def variances(c):
    return over_axes(c, lambda x, axes: x.var(axes, correction=0, keepdim=True))


@case
def logarithms_of_sums(c):
    return over_axes(c, lambda x, axes: x.logsumexp(axes, keepdim=True))


@case
def all_axes(c):
    x = c.floats("x", 2, 3, 4)
    return x * x.sum() + x.mean() / (1 + x.var(correction=0)) - x * x.max() * x.min() + x.logsumexp((0, 1, 2))


@case
def of_a_single_number(c):
    """An axis that ends up in a result without axes."""
    x = c.floats("x", 7)
    return x.softmax(0) * x.var(correction=0) + x.logsumexp(0)


@case
def softmaxes(c):
    x = c.floats("x", 2, 3, 4)
    return torch.cat([x.softmax(0), x.softmax(1), (2 * x).softmax(2), (100 * x).softmax(2)], -1)


def mean_pool(x, marks):
    weights = marks.double()[..., None]
    return (x * weights).sum(-2) / weights.sum(-2).clamp(min=1)


def max_pool(x, marks):
    largest = x.masked_fill(~marks[..., None], float("-inf")).amax(-2)
    return torch.where(marks.any(-1, keepdim=True), largest, 0.0)


def pooled(c, pool):
    x = c.floats("x", 3, 4, 3)
    lens = c.numbers("lens", [4, 0, 2])
    marks = c.marks("keep", 3, 4)
    every = torch.ones(3, 4, dtype=torch.bool)
    return torch.cat([pool(x, every), pool(x, torch.arange(4) < lens[:, None]), pool(x, marks)], -1)


@case
def mean_pools(c):
    return pooled(c, mean_pool)


@case
def max_pools(c):
    return pooled(c, max_pool)
