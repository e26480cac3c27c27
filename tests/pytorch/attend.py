"""Attention to given queries, keys and values: `F.scaled_dot_product_attention`."""

import torch
import torch.nn.functional as F

from attention_layers import rope
from case import case



@case
def queries_keys_and_values(c):
    q, k, v = c.floats("q", 2, 3, 4, 5), c.floats("k", 2, 3, 6, 5), c.floats("v", 2, 3, 6, 2)
    return F.scaled_dot_product_attention(q, k, v)


@case
def grouped_queries(c):
    """The heads stand behind the sequence, and two heads of queries share one of keys."""
    q, k, v = c.floats("q", 2, 5, 4, 3), c.floats("k", 2, 5, 2, 3), c.floats("v", 2, 5, 2, 3)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


@case
def one_head_of_keys(c):
    q, k, v = c.floats("q", 2, 4, 5, 3), c.floats("k", 2, 6, 3), c.floats("v", 2, 6, 3)
    return F.scaled_dot_product_attention(q, k[:, None], v[:, None], scale=0.7)


@case
def without_heads(c):
    q, k, v = c.floats("q", 4, 3), c.floats("k", 6, 3), c.floats("v", 6, 5)
    return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


@case
def valid_keys(c):
    q, k, v = c.floats("q", 2, 3, 4, 5), c.floats("k", 2, 3, 6, 5), c.floats("v", 2, 3, 6, 2)
    lens = c.numbers("lens", [6, 2])
    keep = torch.arange(6)[None, None, None] < lens[:, None, None, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)


@case
def weights_and_sums(c):
    q, k, v = c.floats("q", 2, 4, 5, 3), c.floats("k", 2, 2, 6, 3), c.floats("v", 2, 2, 6, 3)
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) / 3**0.5
    weights, lse = scores.softmax(-1), scores.logsumexp(-1)
    return F.scaled_dot_product_attention(q, k, v), (weights**2 * lse[..., None]).sum(2)


@case
def weights_of_multi_head_attention(c):
    x = c.floats("x", 2, 5, 6)
    projections = ["q_proj", "k_proj", "v_proj", "o_proj"]
    weights = [c.param(f"attention.{name}.weight", 6, 6) for name in projections]
    biases = [c.param(f"attention.{name}.bias", 6) for name in projections]
    of_time = x.transpose(0, 1)
    y, weights = F.multi_head_attention_forward(
        of_time, of_time, of_time, 6, 2,
        torch.cat(weights[:3]), torch.cat(biases[:3]), None, None, False, 0.0, weights[3], biases[3],
        need_weights=True, average_attn_weights=False,
    )
    return y.transpose(0, 1), weights


@case
def rotated_vectors(c):
    x = c.floats("x", 2, 2, 3, 6)
    at = c.ids("at", 9, 2, 3)
    angles = at[:, None, :, None] * 100.0 ** (-torch.arange(0, 4, 2) / 4)
    pairs = torch.view_as_complex(x[..., :4].unflatten(-1, (2, 2)).contiguous())
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    return rope(x) + torch.cat([turned, x[..., 4:]], -1)
