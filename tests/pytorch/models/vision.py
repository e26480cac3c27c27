"""Models of images."""

import torch
import torch.nn.functional as F

from attention_layers import attention, causal
from case import case
from layers import feed_forward, layer_norm, linear


@case
def vision_transformer(c):
    image = c.floats("image", 2, 4, 6)
    x = linear(c, "patch_embedding", image, 4)
    x = torch.cat([c.weight("class", 1, 4).expand(2, 1, 4), x], 1) + c.weight("positions", 5, 4)
    x = torch.cat([x, c.weight("registers", 2, 4).expand(2, 2, 4)], 1)
    for layer in ("blocks.0.", "blocks.1."):
        x = x + attention(c, layer + "attention", layer_norm(c, layer + "layer_norm", x), heads=2)
        x = x + feed_forward(c, layer + "feed_forward", layer_norm(c, layer + "layer_norm_2", x), 8, F.gelu)
    return linear(c, "head", layer_norm(c, "layer_norm", x)[:, 0], 3)


@case
def perceiver(c):
    x = c.floats("x", 2, 5, 4)
    z = c.weight("latents", 3, 4).expand(2, 3, 4)
    shared = c.shared()
    for _ in range(2):
        layer = "blocks."
        read = layer_norm(shared, layer + "of_input", x)
        z = z + attention(shared, layer + "read", layer_norm(shared, layer + "of_latents", z), read, heads=1)
        z = z + feed_forward(shared, layer + "feed_forward", layer_norm(shared, layer + "layer_norm", z), 8, F.gelu)
        z = z + attention(shared, layer + "attention", layer_norm(shared, layer + "layer_norm_2", z), heads=2)
        z = z + feed_forward(shared, layer + "feed_forward_2", layer_norm(shared, layer + "layer_norm_3", z), 8, F.gelu)
    return linear(c, "linear", z.mean(1), 2)


@case
def diffusion_transformer(c):
    x, condition = c.floats("x", 2, 3, 4), c.floats("condition", 2, 4)
    modulation = linear(c, "linear", F.silu(condition), 24)[:, None]
    shift, scale, gate, shift_2, scale_2, gate_2 = modulation.chunk(6, -1)
    y = F.layer_norm(x, (4,), eps=1e-6) * (1 + scale) + shift
    x = x + gate * attention(c, "attention", y, heads=2)
    y = F.layer_norm(x, (4,), eps=1e-6) * (1 + scale_2) + shift_2
    return x + gate_2 * feed_forward(c, "feed_forward", y, 8, lambda x: F.gelu(x, approximate="tanh"))


@case
def radiance_field(c):
    point, direction = c.floats("point", 3, 3), c.floats("direction", 3, 3)
    angles = (point[..., None] * 2.0 ** torch.arange(2)).flatten(1)
    features = torch.cat([point, angles.sin(), angles.cos()], -1)
    h = F.relu(linear(c, "linear", features, 4))
    h = F.relu(linear(c, "linear_2", torch.cat([h, features], -1), 4))
    density = F.softplus(linear(c, "density", h, 1).squeeze(-1))
    return torch.sigmoid(linear(c, "colour", torch.cat([h, direction], -1), 3)), density


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def clip_block(c, layer, x, allowed=None):
    x = x + attention(c, layer + "attention", layer_norm(c, layer + "layer_norm", x), heads=2, allowed=allowed)
    hidden = linear(c, layer + "mlp.linear", layer_norm(c, layer + "layer_norm_2", x), 8)
    return x + linear(c, layer + "mlp.linear_2", quick_gelu(hidden), 4)


@case
def contrastive_towers(c):
    image, text = c.floats("image", 2, 3, 6), c.ids("text", 7, 2, 5)
    x = torch.cat([c.weight("class", 1, 4).expand(2, 1, 4), linear(c, "linear", image, 4, bias=False)], 1)
    x = layer_norm(c, "before", x + c.weight("positions", 4, 4))
    x = clip_block(c, "vision.0.", x)
    x = linear(c, "of_image", layer_norm(c, "after", x[:, 0]), 5, bias=False)
    y = F.embedding(text, c.weight("embedding", 7, 4)) + c.weight("learned_position", 5, 4)
    y = clip_block(c, "language.0.", y, causal(5))
    y = linear(c, "of_text", layer_norm(c, "last", y)[:, -1], 5, bias=False)
    logits = c.weight("temperature").exp() * F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T
    pairs = torch.arange(2)
    return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.T, pairs)) / 2
