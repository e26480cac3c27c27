"""Layers with parameters, positions and dropout."""

import torch
import torch.nn.functional as F

from case import case


def sinusoidal(length, width):
    """As in "Attention is all you need", section 3.5."""
    column = torch.arange(width)
    angle = torch.arange(length)[:, None] / 10000.0 ** ((column - column % 2) / width)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def linear(c, name, x, out, bias=True):
    weight = c.weight(name, out, x.shape[-1])
    return F.linear(x, weight, c.param(f"{name}.bias", out) if bias else None)


def layer_norm(c, name, x, epsilon=1e-5):
    return F.layer_norm(x, x.shape[-1:], c.weight(name, x.shape[-1]), c.param(f"{name}.bias", x.shape[-1]), epsilon)


def rms_norm(c, name, x, epsilon=1e-6):
    return F.rms_norm(x, x.shape[-1:], c.weight(name, x.shape[-1]), epsilon)


def feed_forward(c, name, x, hidden, activation):
    up = F.linear(x, c.weight(f"{name}.up_proj", hidden, x.shape[-1]), c.param(f"{name}.up_proj.bias", hidden))
    down = c.weight(f"{name}.down_proj", x.shape[-1], hidden)
    return F.linear(activation(up), down, c.param(f"{name}.down_proj.bias", x.shape[-1]))


def gated_feed_forward(c, name, x, hidden, activation):
    gate = F.linear(x, c.weight(f"{name}.gate_proj", hidden, x.shape[-1]))
    up = F.linear(x, c.weight(f"{name}.up_proj", hidden, x.shape[-1]))
    return F.linear(activation(gate) * up, c.weight(f"{name}.down_proj", x.shape[-1], hidden))


@case
def embeddings(c):
    ids = c.ids("tokens", 7, 2, 3)
    positions = c.weight("learned_position", 5, 4)[: ids.shape[1]]
    return F.embedding(ids, c.weight("embedding", 7, 4)) + positions + sinusoidal(3, 4)


@case
def positions_of_floats(c):
    x = c.floats("x", 2, 3, 4)
    return x * c.weight("learned_position", 3, 4) - sinusoidal(3, 4)


@case
def tied_tables(c):
    ids = c.ids("tokens", 7, 2, 3)
    table = c.weight("embedding", 7, 4)
    x = F.embedding(ids, table)
    return F.linear(F.gelu(x) + F.embedding(ids, table), table)


@case
def linears(c):
    return linear(c, "linear_2", linear(c, "linear", c.floats("x", 2, 3, 4), 5), 2, bias=False)


@case
def mixtures_of_experts(c):
    """As `MixtralSparseMoeBlock` of `transformers`, with a loss that balances the load."""
    x = c.floats("x", 2, 3, 4)
    speaker = c.numbers("speaker", [2, 0])
    gate = c.weight("gate", 5, 4)
    w1, w3, w2 = c.weight("w1", 5, 6, 4), c.weight("w3", 5, 6, 4), c.weight("w2", 5, 4, 6)
    chances = F.linear(x, gate).softmax(-1)
    best, ids = chances.topk(2)
    best = best / best.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for expert in range(5):
        h = F.linear(F.silu(F.linear(x, w1[expert])) * F.linear(x, w3[expert]), w2[expert])
        y = y + (best * (ids == expert)).sum(-1, keepdim=True) * h
    share = F.one_hot(ids, 5).double().sum(-2).mean((0, 1))
    weight, bias = c.weight("adapter", 3, 4, 4), c.param("adapter.bias", 3, 4)
    y = y + torch.einsum("bsi,boi->bso", x, weight[speaker]) + bias[speaker][:, None]
    return y, 5 * (share * chances.mean((0, 1))).sum()


@case
def experts_with_a_capacity(c):
    x = c.floats("x", 2, 5, 4)
    best, ids = linear(c, "gate", x, 3).softmax(-1).max(-1)
    weight, bias = c.weight("expert", 3, 4, 4), c.param("expert.bias", 3, 4)
    y = torch.einsum("bsi,bsoi->bso", x, weight[ids]) + bias[ids]
    # ceil(0.8 * 10 / 3) = 3 tokens for each.
    place = F.one_hot(ids.flatten(), 3).cumsum(0).gather(1, ids.reshape(-1, 1)).reshape(2, 5)
    assert (place > 3).any()
    return torch.where(place > 3, 0.0, best)[..., None] * y


@case
def feed_forwards(c):
    x = c.floats("x", 2, 3, 4)
    y = [
        feed_forward(c, "feed_forward", x, 6, F.gelu),
        feed_forward(c, "feed_forward_2", x, 3, lambda x: F.gelu(x, approximate="tanh")),
        feed_forward(c, "feed_forward_3", x, 5, F.relu),
        feed_forward(c, "feed_forward_4", x, 2, lambda x: F.relu(x) ** 2),
        feed_forward(c, "feed_forward_5", x, 3, F.silu),
        feed_forward(c, "feed_forward_6", x, 4, torch.sigmoid),
        feed_forward(c, "feed_forward_7", x, 1, torch.tanh),
    ]
    return torch.cat(y, -1)


@case
def gated_feed_forwards(c):
    x = c.floats("x", 2, 3, 4)
    y = [
        gated_feed_forward(c, "feed_forward", x, 6, F.silu),
        gated_feed_forward(c, "feed_forward_2", x, 3, F.gelu),
        gated_feed_forward(c, "feed_forward_3", x, 5, F.relu),
    ]
    return torch.cat(y, -1)


@case
def norms(c):
    x = c.floats("x", 2, 3, 4)
    return layer_norm(c, "layer_norm", x) * rms_norm(c, "rms_norm", x)


@case
def group_norms(c):
    # The derivative of a group of two numbers is ill-conditioned.
    x, image = c.floats("x", 2, 3, 8), c.floats("image", 2, 4, 3, 2)
    gain, bias = c.weight("group_norm", 8), c.param("group_norm.bias", 8)
    tokens = F.group_norm(x.flatten(0, -2), 2, gain, bias).view_as(x)
    return tokens, F.group_norm(image, 2, c.weight("channels_norm", 4), c.param("channels_norm.bias", 4))


@case
def norms_with_a_large_epsilon(c):
    x = c.floats("x", 2, 3, 4)
    y = [
        layer_norm(c, "layer_norm", x, 0.5),
        rms_norm(c, "rms_norm", x, 0.25),
        F.normalize(x, dim=-1, eps=100.0),
        F.normalize(x, dim=-1),
    ]
    return torch.cat(y, -1)


@case
def dropout_acts_in_training_only(c):
    x = c.floats("x", 2, 3, 4)
    return F.dropout(x, 0.5, training=False) + F.dropout(linear(c, "linear", x, 4), 0.0)


@case
def learned_tensors(c):
    x = c.floats("x", 2, 3, 4)
    table, token, temperature = c.weight("table", 3, 4), c.weight("token", 4), c.weight("temperature")
    return (x * table + token) / (2 + temperature * temperature)


@case
def rounds(c):
    x = c.floats("x", 2, 3, 4)
    for round in range(3):
        gain = c.weight(f"blocks.{round}.gain", 4)
        x = x + gain * linear(c, f"blocks.{round}.linear", layer_norm(c, f"blocks.{round}.layer_norm", x), 4)
    shared = c.weight("shared.linear", 4, 4)
    for _ in range(2):
        x = torch.tanh(F.linear(x, shared))
    return x
