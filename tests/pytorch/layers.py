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
