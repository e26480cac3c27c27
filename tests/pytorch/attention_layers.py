"""Attention layers: `torch.nn.functional.scaled_dot_product_attention` where it has all that is asked, and plain operations where not."""

import math

import torch
import torch.nn.functional as F


def projection(c, name, x, out, bias):
    weight = c.weight(name, out, x.shape[-1])
    return F.linear(x, weight, c.param(f"{name}.bias", out) if bias else None)


def heads_of(x, heads):
    """`[.., length, heads * width]` to `[.., heads, length, width]`."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def rope(x, theta=10000.0, positions=None):
    """The halves of a head are the real and imaginary parts of numbers that are turned, as in Llama of Hugging Face."""
    width = x.shape[-1]
    positions = torch.arange(x.shape[-2]) if positions is None else positions
    angles = positions[:, None] * theta ** (-torch.arange(0, width, 2) / width)
    angles = torch.cat([angles, angles], -1)
    real, imaginary = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-imaginary, real], -1) * angles.sin()


def alibi_slopes(heads):
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    more = [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return torch.tensor(slopes + more)


def alibi(heads, queries, keys):
    distance = (torch.arange(queries)[:, None] - torch.arange(keys)).abs()
    return -alibi_slopes(heads)[:, None, None] * distance


def t5_bucket(relative, bidirectional, buckets, most):
    """`T5Attention._relative_position_bucket` of Hugging Face, where `relative` is the key's position minus the query's."""
    bucket = torch.zeros_like(relative)
    if bidirectional:
        buckets //= 2
        bucket = bucket + (relative > 0) * buckets
        relative = relative.abs()
    else:
        relative = -relative.clamp(max=0)
    exact = buckets // 2
    large = exact + (torch.log(relative.clamp(min=1) / exact) / math.log(most / exact) * (buckets - exact)).long()
    return bucket + torch.where(relative < exact, relative, large.clamp(max=buckets - 1))


def t5_bias(table, queries, keys, bidirectional, most):
    relative = torch.arange(keys) - torch.arange(queries)[:, None]
    return table[t5_bucket(relative, bidirectional, table.shape[0], most)].permute(2, 0, 1)


def sparsemax(scores):
    """Martins and Astudillo 2016, algorithm 1: scores, sorted, of which the first ones have weights."""
    ordered = scores.sort(dim=-1, descending=True).values
    count = torch.arange(1, scores.shape[-1] + 1)
    total = ordered.cumsum(-1)
    size = (1 + count * ordered > total).sum(-1, keepdim=True)
    threshold = (total.gather(-1, size - 1) - 1) / size
    return (scores - threshold).clamp(min=0)


def entmax15(scores):
    """Peters et al. 2019, algorithm 2."""
    scores = scores / 2
    ordered = scores.sort(dim=-1, descending=True).values
    count = torch.arange(1, scores.shape[-1] + 1)
    mean = ordered.cumsum(-1) / count
    variance = (ordered**2).cumsum(-1) / count - mean**2
    threshold = mean - ((1 - count * variance) / count).clamp(min=0).sqrt()
    size = (threshold <= ordered).sum(-1, keepdim=True)
    return (scores - threshold.gather(-1, size - 1)).clamp(min=0) ** 2


def softmax(scores, allowed):
    """A query that attends to nothing has the weights 0."""
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    return torch.where(allowed.any(-1, keepdim=True), weights, 0.0)


def softmax_with_sink(scores, allowed, sink):
    """The softmax with another score, whose weight is left out."""
    scores = scores.masked_fill(~allowed, float("-inf"))
    sink = sink.expand(scores.shape[:-1] + (1,))
    return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]


def attention(
    c, name, x, context=None, values=None, *, heads, kv_heads=None, width=None, value_width=None, bias="qkvo", allowed=None,
    scale=None, softcap=None, prepare=lambda vectors, which: vectors, scores=None, biases=None, weights=None, talking=(),
):
    """`allowed` is a mask, `[batch, 1, query, key]` or `[query, key]`; `prepare` is applied to queries and keys, `[batch, heads, length,
    width]`; `scores` makes scores of both, `biases` is added to them, and `weights` are made of them and the mask. `talking` is what heads mix."""
    context = x if context is None else context
    values = context if values is None else values
    d_model = x.shape[-1]
    kv_heads = kv_heads or heads
    width = width or d_model // heads
    q = prepare(heads_of(projection(c, f"{name}.q_proj", x, heads * width, "q" in bias), heads), "q")
    k = prepare(heads_of(projection(c, f"{name}.k_proj", context, kv_heads * width, "k" in bias), kv_heads), "k")
    v = heads_of(projection(c, f"{name}.v_proj", values, kv_heads * (value_width or width), "v" in bias), kv_heads)
    talking = {of: c.weight(f"{name}.mix_{of}", heads, heads) for of in talking}
    mixed = mix(q, k, v, allowed, scale, softcap, scores, biases, weights, talking)
    return projection(c, f"{name}.o_proj", mixed.transpose(-2, -3).flatten(-2), d_model, "o" in bias)


def mix(q, k, v, allowed=None, scale=None, softcap=None, scores=None, biases=None, weights=None, talking={}):
    """The values that every query attends to, `[batch, heads, query, width]`."""
    if softcap is None and scores is None and biases is None and weights is None and not talking:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale, enable_gqa=True)
    group = q.shape[-3] // k.shape[-3]
    k, v = (of.repeat_interleave(group, -3) for of in (k, v))
    s = scores(q, k) if scores else q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if biases is not None:
        s = s + biases
    if "scores" in talking:
        s = talk(s, talking["scores"])
    allowed = torch.tensor(True) if allowed is None else allowed
    allowed = allowed.expand(s.shape)
    s = softmax(s, allowed) if weights is None else weights(s, allowed)
    if "weights" in talking:
        s = talk(s, talking["weights"])
    return s @ v


def talk(of_heads, matrix):
    """`proj_l` and `proj_w` of CaiT, without their biases."""
    return F.linear(of_heads.movedim(-3, -1), matrix).movedim(-1, -3)


def distance(queries, keys, aligned_right=False):
    """The position of the query minus that of the key."""
    start = keys - queries if aligned_right else 0
    return start + torch.arange(queries)[:, None] - torch.arange(keys)


def causal(length):
    return distance(length, length) >= 0
