"""Functions of single numbers, operators, choices, and values that are combined by the names of their axes."""

import torch
import torch.nn.functional as F

from case import case


def numbers(c):
    return c.floats("x", 2, 3, 4), c.floats("y", 2, 3, 4)


@case
def activations(c):
    x, _ = c.floats("x", 2, 3, 5), None
    y = [F.gelu(x), F.gelu(x, approximate="tanh"), F.relu(x), F.relu(x) ** 2, F.silu(x), torch.sigmoid(x), torch.tanh(x)]
    return torch.cat(y, -1)


@case
def activations_of_large_numbers(c):
    x = c.floats("x", 2, 9, scale=40.0)
    y = [F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), torch.sigmoid(x), torch.tanh(x)]
    return torch.cat(y, -1)


@case
def functions(c):
    x, y = numbers(c)
    z = [torch.exp(x), torch.log(2 + y * y), torch.sqrt(1 + y.abs()), x.abs(), torch.floor(3 * x) * y]
    z += [torch.sin(3 * x), torch.cos(200 * y)]
    return torch.cat(z, -1)


@case
def bounds(c):
    x, y = numbers(c)
    z = [
        torch.minimum(x, y), torch.clamp(x, max=0.1), torch.maximum(x, y), torch.clamp(x, min=0.1),
        torch.clamp(x, -0.5, 0.5), torch.clamp(x, y - 1, y + 1),
    ]
    return torch.cat(z, -1)


@case
def powers(c):
    x, y = numbers(c)
    return torch.cat([x**2, x**3, (0.1 + y.abs()) ** 0.5, (0.1 + y.abs()) ** -1.5, x**0], -1)


@case
def operators(c):
    x, y = numbers(c)
    return torch.cat([x + y, x - y, x * y, x / (2 + y * y), 2 * x - 1, 1 - x / 8, 3 / (2 + x * x), -x], -1)


@case
def choices(c):
    x, y = numbers(c)
    z = [
        torch.where(x < 0, 0.1 * x, x),
        torch.where((y <= x) & ~(x > 0.5) | (y >= 0.9), torch.exp(y), torch.where((x != y) & (y < 0), 0.25, x * y)),
        torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, 1.0)), 0.0),
    ]
    return torch.cat(z, -1)


@case
def kinks(c):
    """Where derivatives jump."""
    x = torch.tensor([[-1.0, -0.0, 0.0, 1.0, 2.0], [1.0, 0.0, -2.0, 3.0, 0.5]])
    y = torch.tensor([[-1.0, 0.0, 1.0, 1.0, 0.0], [1.0, 1.0, -2.0, 0.0, 0.5]])
    x, y = c._leaf("x", x), c._leaf("y", y)
    return torch.cat([F.relu(x), F.relu(x) ** 2, x.abs(), torch.maximum(x, y), torch.minimum(x, y)], -1)


@case
def combined_by_name(c):
    x = c.floats("x", 2, 3, 4)
    feature, sequence, position, pair = c.floats("feature", 4), c.floats("sequence", 2, 4), c.floats("position", 3), c.floats("pair", 2, 3)
    one = c.floats("one", 2, 1, 4)
    y = x * (1 + sequence[:, None]) + feature
    y = torch.maximum(y, position[:, None]) - y * pair[:, :, None] + one
    return torch.where(y > feature, y * position[:, None], torch.exp(sequence[:, None] + 0 * y))
