"""Numbers at indices, indices of the largest numbers, sums by index and up to each place, and values without a gradient."""

import torch
import torch.nn.functional as F

from case import case


@case
def without_gradients(c):
    x, w = c.floats("x", 2, 3, 4), c.weight("w", 4)
    y = x * w
    return torch.tanh(y) * y.detach() + x.detach() * w, x + (torch.floor(2 * y) - y).detach()


@case
def rows_of_a_table(c):
    tokens = c.numbers("tokens", [[4, 0, 0], [2, 4, 0]])
    table = c.weight("table", 5, 4)
    return table[tokens] * torch.tanh(table)[tokens], F.embedding(tokens, 2 * table) + table[tokens[:, :1]]


@case
def a_place_of_each_sequence(c):
    x, last = c.floats("x", 3, 5, 4), c.numbers("last", [4, 0, 4])
    y = torch.tanh(x)
    return x[torch.arange(3), last] * y[torch.arange(3), last]


@case
def a_number_of_each_vector(c):
    """What a cross entropy reads."""
    x, target = c.floats("x", 2, 3, 7), c.numbers("target", [[6, 0], [3, 3], [1, 6]])
    return x.gather(-1, target.T[..., None]).squeeze(-1) - x.logsumexp(-1)


@case
def losses_of_classes(c):
    x, target = c.floats("x", 2, 3, 7), c.numbers("target", [[6, 0, 3], [3, 1, 6]])
    classes = x.transpose(1, 2)
    some = F.cross_entropy(2 * classes, target, ignore_index=3, label_smoothing=0.2)
    each = F.cross_entropy(torch.tanh(classes), target, ignore_index=3, label_smoothing=0.5, reduction="none")
    return F.cross_entropy(classes, target) + 2 * some, each


@case
def losses_of_linears(c):
    x, target = c.floats("x", 2, 3, 4), c.numbers("target", [[6, 0, 3], [3, 1, 6]])
    rows, targets = x.flatten(0, 1), target.flatten()
    weight, bias = c.weight("linear", 7, 4), c.param("linear.bias", 7)
    mean = F.linear_cross_entropy(rows, weight, targets, linear_bias=bias, ignore_index=3, label_smoothing=0.2)
    each = F.linear_cross_entropy(torch.tanh(rows), c.weight("linear_2", 7, 4), targets, reduction="none")
    return mean, each.unflatten(0, (2, 3))


@case
def an_order_of_each_sequence(c):
    x, order = c.floats("x", 2, 3, 5), c.numbers("order", [[2, 2, 1], [0, 2, 1]])
    return torch.take_along_dim(x, order[..., None], 1) * x


@case
def an_order_of_each_feature(c):
    x = c.floats("x", 2, 3, 5)
    order = c.ids("order", 3, 2, 4, 5)
    return x.gather(1, order)


@case
def new_axes_in_the_place_of_one(c):
    x = c.floats("x", 2, 5, 3)
    places, pairs = c.numbers("places", [4, 4, 0, 1]), c.ids("pairs", 3, 2, 2)
    return x.index_select(1, places) * 2, x[..., pairs]


@case
def the_first_axis(c):
    x, places, order = c.floats("x", 4, 3), c.numbers("places", [[3, 0, 3]]), c.numbers("order", [[3, 0, 1], [3, 3, 2]])
    return x[places], torch.take_along_dim(x, order, 0)


@case
def constant_indices(c):
    x = c.floats("x", 2, 4, 3)
    return x[:, [0, 2, -1]] * x[:, [1, 1, -4]], x[..., [-1, 0]][:, [3]]


@case
def several_axes(c):
    x = c.floats("x", 3, 5, 4, 3)
    last, head = c.numbers("last", [4, 0, 2]), c.numbers("head", [0, 3, 3])
    return x[torch.arange(3), last, head, 1:]


@case
def the_largest(c):
    """Of equal numbers the first one; NaN is larger than any."""
    x = c.floats("x", 3, 4, 5)
    y = c.numbers("y", [[[1, 3, 3, 2, 3], [float("-inf")] * 5, [0, float("nan"), float("inf"), 5, 6], [-1, -2, -3, -1, -4]]] * 3)
    axes = [F.one_hot(of.argmax(-1), 5) * x for of in (x, y)]
    best = torch.take_along_dim(x, x.sum(-1).argmax(1)[:, None, None], 1)
    return axes[0] + 2 * axes[1], best.squeeze(1)


@case
def a_table_at_the_largest(c):
    x = c.floats("x", 2, 3, 5)
    table, other = c.param("embedding.weight", 6, 4), c.weight("other", 5, 4)
    best = x.argmax(-1)
    return F.embedding(best, table) * x.amax(-1, keepdim=True), other[x.argmin(-1)] * other[best]


@case
def largest_numbers(c):
    x = c.floats("x", 2, 5, 4)
    y = torch.tanh(x)
    values, ids = y.topk(2, -1)
    tokens, order = y.topk(3, 1)
    return values * x.gather(-1, ids), tokens * torch.take_along_dim(x, order, 1)


@case
def all_numbers_in_order(c):
    x = c.floats("x", 3, 4)
    values, ids = x.topk(4, -1)
    one, best = x.topk(1, 0)
    ordered = F.one_hot(ids, 4) * values[..., None]
    return ordered, one + x * x.gather(0, best)


@case
def mixture_of_experts(c):
    x = c.floats("x", 2, 3, 4)
    gains = c.weight("gains", 5, 4)
    scores = x @ c.param("router.weight", 5, 4).T
    values, chosen = scores.topk(2, -1)
    shares = torch.zeros_like(scores).scatter(-1, chosen, values.softmax(-1))
    return (gains[chosen] * values.softmax(-1)[..., None]).sum(-2) * x, shares


@case
def indices_of_axes(c):
    x = c.floats("x", 2, 3, 4)
    table = c.weight("table", 7, 4)
    return x * table[torch.arange(3)] + x * table[torch.arange(2)][:, None], x[..., :3] * F.one_hot(torch.arange(3), 5)[:, :3]


@case
def ones_at_ids(c):
    x, ids = c.floats("x", 2, 3, 5), c.numbers("ids", [[4, 0, 4], [2, 2, 2]])
    return x * F.one_hot(ids, 5), F.one_hot(ids.T, 7) + x.sum()


@case
def sums_by_id(c):
    x, ids = c.floats("x", 2, 3, 4), c.numbers("ids", [[4, 0, 4], [2, 4, 4]])
    each = torch.zeros(2, 5, 4).scatter_add(1, ids[..., None].expand(2, 3, 4), x * x)
    every = torch.zeros(5, 4).index_add(0, ids.flatten(), x.flatten(0, 1))
    return each, every


@case
def sums_of_numbers_by_id(c):
    """Without axes beside that of the ids, and in another order."""
    x, ids = c.floats("x", 3, 2), c.numbers("ids", [[1, 1, 0], [3, 1, 1]])
    flat = torch.zeros(4).index_add(0, ids.T.flatten(), x.flatten())
    return flat, torch.zeros(2, 4).scatter_add(1, ids, x.T)


@case
def sums_along_an_axis_that_is_there(c):
    x = c.floats("x", 2, 3, 5)
    values, order = x.topk(3, -1)
    back = torch.zeros(2, 3, 5).scatter_add(-1, order, 2 * values)
    turned = c.numbers("turned", [[2, 2, 0], [1, 1, 1]])
    return back * x, torch.zeros(2, 3, 5).scatter_add(1, turned[..., None].expand(2, 3, 5), x)


@case
def sums_up_to_each_place(c):
    x = c.floats("x", 3, 4, 5)
    y = torch.tanh(x)
    return x.cumsum(0) * y.cumsum(1), y.cumsum(2) - x * (1 - x).cumsum(-1)


@case
def vectors_of_length_1(c):
    """Some are shorter than the epsilon."""
    x = c.floats("x", 3, 4, 5)
    y = 0.2 * torch.tanh(x)
    return F.normalize(x, dim=0) * F.normalize(y, dim=1), F.normalize(y, dim=1, eps=0.3) + F.normalize(y, dim=2, eps=0.2) * F.normalize(x, dim=0, eps=1.5)


@case
def of_one_number(c):
    x = c.floats("x", 1, 1, 1)
    zeros = c.numbers("zeros", [[0]])
    values, ids = x.topk(1, -1)
    y = x.cumsum(1) + values * F.one_hot(x.argmax(-1), 1) + torch.zeros(1, 1, 1).scatter_add(1, zeros[..., None], x)
    return y * x.gather(-1, ids), x[0, 0] + x[:, 0]


@case
def of_nothing(c):
    """Sequences without tokens."""
    x, ids = c.floats("x", 2, 0, 4), c.numbers("ids", torch.zeros(2, 0, dtype=torch.int64))
    table = c.weight("table", 5, 4)
    values, best = (x * table[ids]).topk(2, -1)
    sums = torch.zeros(2, 5, 4).scatter_add(1, ids[..., None].expand(2, 0, 4), x.cumsum(1) + F.normalize(x, dim=1))
    return table + sums + F.one_hot(best, 4).sum((0, 1, 2)), table[torch.arange(0)].sum(0) + values.sum()
