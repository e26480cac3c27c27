"""Scans: recurrent layers of PyTorch, and formulas of papers in their parallel forms."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from case import case


def weights(c, gates, d, hidden):
    """The parameters of a layer of PyTorch, under our names."""
    return {
        "weight_ih_l0": c.param("w_ih.weight", gates * hidden, d),
        "bias_ih_l0": c.param("w_ih.bias", gates * hidden),
        "weight_hh_l0": c.param("w_hh.weight", gates * hidden, hidden),
        "bias_hh_l0": c.param("w_hh.bias", gates * hidden),
    }


@case
def gru(c):
    x = c.floats("x", 2, 5, 3)
    y, last = functional_call(nn.GRU(3, 4, batch_first=True), weights(c, 3, 3, 4), (x,))
    return y, last[0]


@case
def lstm(c):
    x, h, cell = c.floats("x", 2, 5, 3), c.floats("start", 2, 4), c.floats("start_cell", 2, 4)
    layer = nn.LSTM(3, 4, batch_first=True)
    y, (_, last) = functional_call(layer, weights(c, 4, 3, 4), (x, (h[None], cell[None])))
    return y, last[0]


@case
def bidirectional_rnn(c):
    x = c.floats("x", 2, 4, 3)
    names = ["weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0"]
    shapes = [(4, 3), (4,), (4, 4), (4,)]
    parameters = {}
    for prefix, suffix in [("forwards", ""), ("backwards", "_reverse")]:
        for name, shape, ours in zip(names, shapes, ["ih.weight", "ih.bias", "hh.weight", "hh.bias"]):
            parameters[name + suffix] = c.param(f"{prefix}_{ours}", *shape)
    y, _ = functional_call(nn.RNN(3, 4, batch_first=True, bidirectional=True), parameters, (x,))
    return y


@case
def decoder_with_additive_attention(c):
    """Bahdanau et al. 2015: each step reads the memory with weights of its state."""
    x, memory = c.floats("x", 2, 3, 3), c.floats("memory", 2, 5, 4)
    lens = c.numbers("lens", [5, 2])
    keys, score = F.linear(memory, c.weight("keys", 6, 4)), c.weight("alignment.score_proj", 1, 6)
    query = c.weight("query", 6, 6), c.param("query.bias", 6)
    of_input = c.weight("input", 6, 7), c.param("input.bias", 6)
    before = c.weight("before", 6, 6)
    keep = torch.arange(5) < lens[:, None]
    h = torch.zeros(2, 6)
    steps, alignment = [], []
    for t in range(3):
        scores = F.linear(torch.tanh(F.linear(h, *query)[:, None] + keys), score)[..., 0]
        weights = scores.masked_fill(~keep, -torch.inf).softmax(-1)
        context = torch.einsum("bs,bsd->bd", weights, memory)
        h = torch.tanh(F.linear(torch.cat([x[:, t], context], -1), *of_input) + F.linear(h, before))
        steps.append(h)
        alignment.append(weights)
    return torch.stack(steps, 1), torch.stack(alignment, 1)


@case
def linear_attention(c):
    """Katharopoulos et al. 2020, equation 9, with all weights at once."""
    q, k, v = (c.floats(name, 2, 5, 3) for name in "qkv")
    q, k = F.elu(q) + 1, F.elu(k) + 1
    scores = (q @ k.mT).tril()
    return scores @ v / scores.sum(-1, keepdim=True)


@case
def retention(c):
    """Sun et al. 2023, equation 5: the parallel form, with a decay of 0.9."""
    q, k, v = (c.floats(name, 2, 5, 3) for name in "qkv")
    n = torch.arange(5)
    decay = (0.9 ** (n[:, None] - n).clamp(min=0)).tril()
    return (q @ k.mT * decay) @ v


@case
def selective_state_space(c):
    """Gu and Dao 2023, algorithm 2: `selective_scan_ref`."""
    x, b, n = c.floats("x", 2, 5, 3), c.floats("b", 2, 5, 2), c.floats("c", 2, 5, 2)
    a, skip = c.weight("a", 3, 2), c.weight("skip", 3)
    delta = F.softplus(F.linear(x, c.param("linear.weight", 3, 3), c.param("linear.bias", 3)))
    h = torch.zeros(2, 3, 2)
    ys = []
    for t in range(5):
        h = torch.exp(-delta[:, t, :, None] * a.exp()) * h + (delta * x)[:, t, :, None] * b[:, t, None]
        ys.append((h * n[:, t, None]).sum(-1))
    return torch.stack(ys, 1) + skip * x
