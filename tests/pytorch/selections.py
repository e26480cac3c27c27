"""Reductions and softmaxes of the numbers that lengths or marks select: where they select nothing, the result is 0."""

import torch

from case import case


def selected_sum(x, keep, axis):
    return x.masked_fill(~keep, 0).sum(axis)


def selected_mean(x, keep, axis):
    return selected_sum(x, keep, axis) / keep.expand_as(x).sum(axis).clamp(min=1)


def selected_max(x, keep, axis):
    largest = x.masked_fill(~keep, float("-inf")).amax(axis)
    return torch.where(keep.expand_as(x).any(axis), largest, 0.0)


def selected_min(x, keep, axis):
    return -selected_max(-x, keep, axis)


def selected_variance(x, keep, axis):
    mean = selected_mean(x, keep, axis).unsqueeze(axis)
    return selected_mean((x - mean) ** 2, keep, axis)


def selected_logsumexp(x, keep, axis):
    """Of nothing it is infinite, so its exponential is what is compared."""
    return torch.exp(0.5 * x.masked_fill(~keep, float("-inf")).logsumexp(axis))


def selected_softmax(x, keep, axis):
    weights = x.masked_fill(~keep, float("-inf")).softmax(axis)
    return torch.where(keep.expand_as(x).any(axis, keepdim=True), weights, 0.0).masked_fill(~keep, 0)


def of_tokens(c, reduce):
    """Along the sequence, by lengths and by marks: those of the second sequence are none."""
    x = c.floats("x", 3, 4, 5)
    lens, keep = c.numbers("lens", [4, 0, 2]), c.marks("keep", 3, 4)
    up_to = torch.arange(4) < lens[:, None]
    y = torch.tanh(2 * x)
    return reduce(x, up_to[..., None], 1) * reduce(y, up_to[..., None], 1), reduce(x, keep[..., None], 1) * reduce(y, keep[..., None], 1)


@case
def sums(c):
    return of_tokens(c, selected_sum)


@case
def means(c):
    return of_tokens(c, selected_mean)


@case
def maxima(c):
    return of_tokens(c, selected_max)


@case
def minima(c):
    return of_tokens(c, selected_min)


@case
def variances(c):
    return of_tokens(c, selected_variance)


@case
def logarithms_of_sums(c):
    return of_tokens(c, selected_logsumexp)


@case
def softmaxes(c):
    return of_tokens(c, selected_softmax)


@case
def of_the_last_axis(c):
    x = c.floats("x", 2, 3, 5)
    keep, lens = c.marks("keep", 3, 5), c.numbers("lens", [[5, 0, 1], [3, 4, 2]])
    up_to = torch.arange(5) < lens[..., None]
    weights = selected_softmax(x, keep, -1) * selected_softmax(2 * x, up_to, -1)
    numbers = selected_sum(x, up_to, -1) * selected_max(x, keep, -1) + selected_variance(x, keep, -1) * selected_logsumexp(x, up_to, -1)
    return weights, numbers * selected_mean(x, keep, -1) - selected_min(x, up_to, -1)


@case
def of_the_first_axis(c):
    """The axes of what selects stand behind the one that is read, in another order."""
    x = c.floats("x", 4, 3, 2)
    keep, lens = c.marks("keep", 3, 4), c.numbers("lens", [[0, 4, 1], [3, 2, 4]])
    marks = keep.T[..., None]
    up_to = torch.arange(4)[:, None, None] < lens.T
    weights = selected_softmax(x, marks, 0) * selected_softmax(2 * x, up_to, 0)
    numbers = selected_sum(x, up_to, 0) * selected_max(x, marks, 0) + selected_variance(x, marks, 0) * selected_logsumexp(x, up_to, 0)
    return weights, numbers * selected_mean(x, marks, 0) - selected_min(x, up_to, 0)


@case
def the_same_for_all(c):
    """Marks of an axis alone, of one number and of none."""
    x = c.floats("x", 2, 3, 4)
    keep, none = c.numbers("keep", [False, True, False]), c.numbers("none", [False] * 4)
    y = selected_softmax(x, keep[:, None], 1) + x * selected_softmax(x, none, -1)
    return y * selected_mean(x, keep[:, None], 1)[:, None], selected_sum(x, none, -1) + selected_variance(x, none, -1) + selected_min(x, none, -1)


@case
def of_no_tokens(c):
    x = c.floats("x", 2, 0, 3)
    lens, keep = c.numbers("lens", [0, 0]), c.numbers("keep", torch.zeros(2, 0, dtype=torch.bool))
    return torch.zeros(2, 3) + x.sum(1), torch.exp(x).sum(1)


@case
def along_an_axis(c):
    x = c.floats("x", 3, 4, 5)
    lens, keep = c.numbers("lens", [4, 0, 2]), c.marks("keep", 3, 4)
    up_to = torch.arange(4) < lens[:, None]

    def sums_and_vectors(counts):
        masked = x.masked_fill(~counts[..., None], 0)
        place = x[..., 0].masked_fill(~counts, float("-inf")).argmax(1)
        largest = x[torch.arange(3), place]
        return masked.cumsum(1) * torch.nn.functional.normalize(masked, dim=1) + largest[:, None]

    return sums_and_vectors(up_to), sums_and_vectors(keep)
