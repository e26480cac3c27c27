"""Models of text."""

import torch
import torch.nn.functional as F

from attention_layers import attention, causal, distance, rope
from case import case
from layers import feed_forward, layer_norm, linear, rms_norm


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


@case
def prompt_tuning(c):
    table = c.weight("embedding", 7, 4)
    x = torch.cat([c.weight("prompt", 2, 4).expand(2, 2, 4), F.embedding(c.ids("ids", 7, 2, 3), table)], 1)
    x = x + c.weight("learned_position", 8, 4)[:5]
    for layer in ("blocks.0.", "blocks.1."):
        y = layer_norm(c, layer + "layer_norm", x)
        x = x + attention(c, layer + "attention", y, heads=2, allowed=causal(5))
        x = x + feed_forward(c, layer + "feed_forward", layer_norm(c, layer + "layer_norm_2", x), 8, gelu_tanh)
    return F.linear(layer_norm(c, "layer_norm", x)[:, -1], table)


@case
def gemma_2(c):
    table = c.weight("embedding", 7, 4)
    x = F.embedding(c.ids("ids", 7, 2, 4), table) * 4**0.5
    d = distance(4, 4)
    local, everywhere = (d >= 0) & (d < 2), d >= 0

    def attend(name, x, allowed):
        keys = dict(heads=2, kv_heads=1, width=4, scale=0.4, softcap=0.8, bias="", prepare=lambda of, _: rope(of))
        return attention(c, name, x, allowed=allowed, **keys)

    for layer in ("blocks.0.", "blocks.1."):
        y = attend(layer + "local", rms_norm(c, layer + "rms_norm", x), local)
        x = x + rms_norm(c, layer + "rms_norm_2", y)
        y = rms_norm(c, layer + "rms_norm_3", x)
        y = gelu_tanh(linear(c, layer + "linear", y, 8, bias=False)) * linear(c, layer + "linear_2", y, 8, bias=False)
        x = x + rms_norm(c, layer + "rms_norm_4", linear(c, layer + "linear_3", y, 4, bias=False))
        y = attend(layer + "global", rms_norm(c, layer + "rms_norm_5", x), everywhere)
        x = x + rms_norm(c, layer + "rms_norm_6", y)
    return 3 * torch.tanh(F.linear(rms_norm(c, "rms_norm", x), table) / 3)


def partly_rotated(of, _):
    return torch.cat([rope(of[..., :2]), of[..., 2:]], -1)


@case
def parallel_residual(c):
    x = F.embedding(c.ids("ids", 7, 2, 4), c.weight("embedding", 7, 8))
    for layer in ("blocks.0.", "blocks.1."):
        y, z = layer_norm(c, layer + "layer_norm", x), layer_norm(c, layer + "layer_norm_2", x)
        y = attention(c, layer + "attention", y, heads=2, allowed=causal(4), prepare=partly_rotated)
        x = x + y + feed_forward(c, layer + "feed_forward", z, 12, F.gelu)
    return linear(c, "linear", layer_norm(c, "layer_norm", x), 7, bias=False)


def with_normed_heads(c, name, x):
    def prepare(of, which):
        width = of.shape[-1]
        return rope(F.rms_norm(of, (width,), c.weight(f"{name}.{which}_norm", width), 1e-6))

    return attention(c, name, x, heads=2, allowed=causal(x.shape[1]), bias="", prepare=prepare)


@case
def gated_attention(c):
    x = c.floats("x", 2, 4, 4)
    y = rms_norm(c, "rms_norm", x)
    return x + torch.sigmoid(linear(c, "linear", y, 4, bias=False)) * with_normed_heads(c, "attention", y)


@case
def value_residual(c):
    x = c.floats("x", 2, 4, 6)

    def heads(name, x):
        return linear(c, name, x, 6, bias=False).view(2, 4, 2, 3).transpose(1, 2)

    def attend(name, x, v):
        y = F.scaled_dot_product_attention(heads(f"{name}.q", x), heads(f"{name}.k", x), v, is_causal=True)
        return linear(c, f"{name}.out", y.transpose(1, 2).reshape(2, 4, 6), 6, bias=False)

    y = rms_norm(c, "rms_norm", x)
    first = heads("values.linear", y)
    x = x + attend("attend", y, first)
    for layer in ("blocks.0.", "blocks.1."):
        mix = c.weight(layer + "mix", 2)
        y = rms_norm(c, layer + "rms_norm", x)
        x = x + attend(layer + "attend", y, mix[0] * heads(layer + "values.linear", y) + mix[1] * first)
    return x


@case
def skips_of_a_u(c):
    def norm(x):
        return F.rms_norm(x, (4,), eps=1e-6)

    def squared(name, other, x):
        return linear(c, other, F.relu(linear(c, name, norm(x), 8, bias=False)) ** 2, 4, bias=False)

    mix, skip = c.weight("mix", 2), c.weight("skip", 2)
    first = norm(F.embedding(c.ids("ids", 7, 2, 4), c.weight("embedding", 7, 4)))
    a = first + with_normed_heads(c, "attention", first)
    b = a + squared("linear", "linear_2", a)
    x = mix[0] * (b + skip[0] * b) + mix[1] * first
    x = x + with_normed_heads(c, "attention_2", norm(x))
    x = x + skip[1] * a
    x = x + squared("linear_3", "linear_4", x)
    return 15 * torch.tanh(linear(c, "linear_5", norm(x), 7, bias=False) / 15)


@case
def normalized_transformer(c):
    def step(name, h, y):
        return F.normalize(h + c.weight(f"{name}.rate", 4).abs() * (F.normalize(y, dim=-1) - h), dim=-1)

    def prepare(of, _):
        return rope(of / torch.sqrt((of * of).sum(-1, keepdim=True) + 1e-6))

    h = F.normalize(F.embedding(c.ids("ids", 7, 2, 4), c.weight("embedding", 7, 4)), dim=-1)
    for layer in ("blocks.0.", "blocks.1."):
        scale = c.weight(layer + "of_hidden", 6)
        y = attention(c, layer + "attention", h, heads=2, allowed=causal(4), scale=1.5, bias="", prepare=prepare)
        h = step(layer + "step", h, y)
        gate, up = linear(c, layer + "linear", h, 12, bias=False).chunk(2, -1)
        h = step(layer + "step_2", h, linear(c, layer + "down", scale * up * F.silu(2 * scale * gate), 4, bias=False))
    return c.weight("of_logits", 7) * linear(c, "head", h, 7, bias=False)


@case
def linear_attention(c):
    x = c.floats("x", 2, 5, 4)
    q, k = (F.elu(linear(c, name, x, 3, bias=False)) + 1 for name in "qk")
    scores = (q @ k.mT).tril()
    return scores @ linear(c, "v", x, 4, bias=False) / scores.sum(-1, keepdim=True)


@case
def multi_head_latent_attention(c):
    """DeepSeek-V2, section 2.1: every head has keys and values of its own, made of the latents."""
    table = c.weight("embedding", 7, 6)
    x = F.embedding(c.ids("ids", 7, 2, 5), table)
    up_k, up_v = c.weight("up_k", 4, 2, 3), c.weight("up_v", 4, 2, 3)
    rotated = rope(linear(c, "q_rotated", x, 4, bias=False).unflatten(-1, (2, 2)).transpose(1, 2))
    content = linear(c, "q_content", x, 6, bias=False).unflatten(-1, (2, 3)).transpose(1, 2)
    latent = rms_norm(c, "rms_norm", linear(c, "down", x, 4, bias=False))
    key = rope(linear(c, "key", x, 2, bias=False))[:, None].expand(2, 2, 5, 2)
    q = torch.cat([rotated, content], -1)
    k = torch.cat([key, torch.einsum("bsr,rhn->bhsn", latent, up_k)], -1)
    v = torch.einsum("bsr,rhv->bhsv", latent, up_v)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(x + linear(c, "merged", y.transpose(1, 2).flatten(2), 6, bias=False), table)
