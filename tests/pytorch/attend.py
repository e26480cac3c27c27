"""Attention to given queries, keys and values: `F.scaled_dot_product_attention`."""

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

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


def of_natten(b, h, q_idx, kv_idx):
    """The `mask_mod` of neighborhoods of 3 x 3 on a grid of 4 x 5: a window at a border is moved inside."""
    (q_row, q_col), (kv_row, kv_col) = ((idx // 5, idx % 5) for idx in (q_idx, kv_idx))
    row, col = q_row.clamp(1, 4 - 2), q_col.clamp(1, 5 - 2)
    return ((row - kv_row).abs() <= 1) & ((col - kv_col).abs() <= 1)


@case
def neighborhoods_of_natten(c):
    q, k, v = (c.floats(name, 2, 2, 20, 3) for name in "qkv")
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=create_mask(of_natten, 1, 1, 20, 20, device="cpu"))
    with torch.no_grad():
        # It has no derivative on a CPU.
        blocks = create_block_mask(of_natten, None, None, 20, 20, device="cpu")
        of_flex = flex_attention(*(x.detach() for x in (q, k, v)), block_mask=blocks)
        torch.testing.assert_close(of_flex, y.detach())
    return y


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
def heads_of(x, heads):
    """`[batch, seq, heads * d]` to `[batch, heads, seq, d]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def places(query, key):
    """`kv_idx - q_idx`"""
    return torch.arange(key) - torch.arange(query)[:, None]


@case
def a_bias_of_all_layers(c):
    """T5: the first layer has the table, and all of them add its biases."""
    x, table = c.floats("x", 2, 5, 4), c.weight("table", 8, 2)
    bias = torch.tanh(table)[(places(5, 5) + 4).clamp(0, 7)].permute(2, 0, 1)
    for round in range(2):
        w = c.weight(f"blocks.{round}.linear", 4, 4)
        q = heads_of(x @ w.T, 2)
        x = x + F.scaled_dot_product_attention(q, heads_of(x, 2), heads_of(x, 2), attn_mask=bias).transpose(1, 2).flatten(2)
    return x


@case
def a_bias_of_pairs(c):
    """AlphaFold: attention of rows, with the biases of a representation of pairs."""
    q, k, v = c.floats("q", 2, 2, 5, 3), c.floats("k", 2, 2, 5, 3), c.floats("v", 2, 2, 5, 3)
    pairs, w = c.floats("pairs", 2, 5, 5, 4), c.weight("linear", 2, 4)
    bias = F.linear(F.layer_norm(pairs, (4,)), w).permute(0, 3, 1, 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


@case
def relative_keys(c):
    """Shaw et al. 2018, with a tensor of all pairs and widths."""
    q, k, v = c.floats("q", 2, 2, 5, 4), c.floats("k", 2, 2, 6, 4), c.floats("v", 2, 2, 6, 4)
    table = c.weight("table", 7, 4)
    of_pairs = table[(places(5, 6) + 3).clamp(0, 6)]
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) + torch.einsum("bhqd,qkd->bhqk", q, of_pairs)
    return torch.softmax(scores / 4**0.5, -1) @ v


def rel_shift(x):
    """Row `i` starts `len - 1 - i` columns later. This is `_rel_shift` of Transformer-XL."""
    batch, heads, query, key = x.shape
    padded = torch.cat([x.new_zeros(batch, heads, query, 1), x], -1)
    return padded.view(batch, heads, key + 1, query)[:, :, 1:].view_as(x)


@case
def relative_positions_of_transformer_xl(c):
    """`r` has the positions in descending order, as there."""
    q, k, v = c.floats("q", 2, 2, 5, 3), c.floats("k", 2, 2, 5, 3), c.floats("v", 2, 2, 5, 3)
    r, w = c.floats("r", 5, 4), c.weight("linear", 6, 4)
    u, s = c.weight("u", 2, 3), c.weight("s", 2, 3)
    r = (r @ w.T).unflatten(-1, (2, 3)).flip(0)
    content = torch.einsum("bhqd,bhkd->bhqk", q + u[:, None], k)
    position = rel_shift(torch.einsum("bhqd,khd->bhqk", q + s[:, None], r))
    scores = (content + position) / 3**0.5
    scores = scores.masked_fill(places(5, 5) > 0, -torch.inf)
    return torch.softmax(scores, -1) @ v
