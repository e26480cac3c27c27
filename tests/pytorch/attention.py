"""Every key and word of an attention."""

import torch
import torch.nn.functional as F

from attention_layers import *
from case import case


def x_of(c, length=5, width=4):
    return c.floats("x", 2, length, width)


@case
def plain(c):
    return attention(c, "attention", x_of(c), heads=2)


@case
def causal_with_fewer_keys_and_values(c):
    return attention(c, "attention", x_of(c, width=8), heads=4, kv_heads=2, allowed=causal(5), bias="")


@case
def widths_of_heads(c):
    return attention(c, "attention", x_of(c), heads=2, width=3, value_width=5, bias="qv", scale=0.3)


@case
def windows(c):
    x = x_of(c)
    d = distance(5, 5)
    masks = {
        "window": (d >= 0) & (d < 2),
        "both": d.abs() < 2,
        "dilated": (d >= 0) & (d < 4) & (d % 2 == 0),
        "prefix": (d >= 0) | (torch.arange(5) < 2),
        "chunks": torch.arange(5)[:, None] // 2 == torch.arange(5) // 2,
    }
    return sum(attention(c, name, x, heads=2, allowed=allowed, bias="") for name, allowed in masks.items())


@case
def masks_of_data(c):
    x = x_of(c)
    lens, keep, ids = c.numbers("lens", [5, 3]), c.marks("keep", 2, 5), c.ids("documents", 2, 2, 5)
    of_lens = (torch.arange(5) < lens[:, None])[:, None, None]
    of_marks = keep[:, None, None]
    same = (ids[:, :, None] == ids[:, None])[:, None]
    z = attention(c, "by_lens", x, heads=2, allowed=of_lens)
    z = z + attention(c, "by_marks", x, heads=2, allowed=of_marks & causal(5))
    z = z + attention(c, "by_document", x, heads=2, allowed=same & causal(5))
    return z + attention(c, "by_no_mark", x, heads=2, allowed=~of_marks | causal(5))


@case
def of_a_context(c):
    x, y, lens = x_of(c, 3), c.floats("y", 2, 4, 3), c.numbers("lens", [4, 2])
    padding = (torch.arange(4) < lens[:, None])[:, None, None]
    z = attention(c, "attention", x, y, heads=2, allowed=padding)
    z = z + attention(c, "upper", x, y, heads=2, allowed=distance(3, 4) >= 0)
    d = distance(3, 4, aligned_right=True)
    return z + attention(c, "lower", x, y, heads=2, allowed=(d >= 0) & (d < 2))


@case
def of_keys_and_values(c):
    x, y, z, lens = x_of(c, 3), c.floats("y", 2, 4, 3), c.floats("z", 2, 4, 5), c.numbers("lens", [4, 2])
    allowed = (torch.arange(4) < lens[:, None])[:, None, None]
    padding = attention(c, "attention", x, y, z, heads=2, allowed=allowed)
    return padding + attention(c, "shared", x, y, z, heads=2, kv_heads=1, prepare=lambda of, _: rope(of))


def neighborhood(length, n, dilation=1):
    """`get_window_start` of NATTEN: the places with one remainder are an axis of their own, and windows end at its ends."""
    allowed = torch.zeros(length, length, dtype=torch.bool)
    for q in range(length):
        places = list(range(q % dilation, length, dilation))
        start = max(min(q // dilation - n // 2, len(places) - n), 0)
        allowed[q, places[start : start + n]] = True
    return allowed


def both(rows, cols):
    """Tokens row by row: what is allowed along rows and along columns."""
    return torch.kron(rows.int(), cols.int()).bool()


def everything(length):
    return torch.ones(length, length, dtype=torch.bool)


@case
def on_a_grid(c):
    x, y = x_of(c, 12), c.floats("y", 2, 6, 3)
    place = torch.arange(12)
    row, col = place // 4, place % 4
    windows = [(of[:, None] + 1) // 2 == (of + 1) // 2 for of in (row, col)]
    around = [(of[:, None] - of).abs() < 2 for of in (row, col)]
    behind = (place - 2).div(2, rounding_mode="floor")
    masks = {
        "near": both(neighborhood(3, 2), neighborhood(4, 3)),
        "dilated": both(neighborhood(2, 2, 2), neighborhood(6, 2, 2)),
        "around": around[0] & around[1],
        "shifted": windows[0] & windows[1],
        "cross": both(torch.eye(3), everything(4)) | both(everything(3), torch.eye(4)),
        "frames": both(torch.eye(3), everything(4)),
        "classes": (behind[:, None] == behind) | (behind < 0) | (behind < 0)[:, None],
    }
    z = sum(attention(c, name, x, heads=2, allowed=allowed) for name, allowed in masks.items())
    return z + attention(c, "other", x, y, heads=2, allowed=row[:, None] == torch.arange(6) // 2)


@case
def shifted_windows_of_swin(c):
    """`SwinTransformerBlock`: a cyclic shift, windows, and a mask that keeps apart what was not side by side before the shift."""
    x = c.floats("x", 2, 24, 4)
    height, width, n, shift, heads = 4, 6, 2, 1, 2

    def partition(x):
        x = x.view(-1, height // n, n, width // n, n, x.shape[-1])
        return x.transpose(2, 3).reshape(-1, n * n, x.shape[-1])

    windows = partition(torch.roll(x.view(2, height, width, 4), (-shift, -shift), (1, 2)))
    parts = slice(0, -n), slice(-n, -shift), slice(-shift, None)
    region = torch.zeros(1, height, width, 1)
    for i, rows in enumerate(parts):
        for j, cols in enumerate(parts):
            region[:, rows, cols] = 3 * i + j
    region = partition(region)[..., 0]
    apart = region[:, None] != region[:, :, None]
    # `relative_position_index`
    coords = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    relative = coords[:, None] - coords + n - 1
    table = c.weight("attention.table", (2 * n - 1) ** 2, heads)
    bias = table[relative[..., 0] * (2 * n - 1) + relative[..., 1]].permute(2, 0, 1)
    mask = bias + torch.zeros(apart.shape).masked_fill(apart, -torch.inf)[:, None]
    q, k, v = (heads_of(projection(c, f"attention.{of}_proj", windows, 4, True), heads) for of in "qkv")
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.repeat(2, 1, 1, 1))
    y = projection(c, "attention.o_proj", y.transpose(1, 2).flatten(2), 4, True)
    y = y.view(2, height // n, width // n, n, n, 4).transpose(2, 3).reshape(2, height, width, 4)
    return torch.roll(y, (shift, shift), (1, 2)).flatten(1, 2)


@case
def talking_heads(c):
    """Shazeer et al. 2020, figure 1."""
    x = x_of(c)
    w_q, w_k, w_v, w_o = (c.weight(f"w_{which}", 2, 3, 4) for which in "qkvo")
    before, behind = c.weight("mix_scores", 2, 3), c.weight("mix_weights", 3, 2)
    q, k, v = (torch.einsum("bsd,hwd->bhsw", x, w) for w in (w_q, w_k, w_v))
    scores = torch.einsum("bhqk,hg->bgqk", q @ k.mT / 3**0.5, before)
    weights = torch.einsum("bgqk,gh->bhqk", scores.softmax(-1), behind)
    return torch.einsum("bhsw,hwd->bsd", weights @ v, w_o)


@case
def heads_that_talk(c):
    """CaiT's `TalkingHeadAttn` without biases of the two layers."""
    x, lens = x_of(c), c.numbers("lens", [4, 0])
    padding = (torch.arange(5) < lens[:, None])[:, None, None]
    z = attention(c, "both", x, heads=2, talking=("scores", "weights"))
    z = z + attention(c, "scores", x, heads=4, kv_heads=2, allowed=causal(5), talking=("scores",), biases=alibi(4, 5, 5))
    sigmoid = lambda s, allowed: torch.where(allowed, torch.sigmoid(s), 0.0)
    z = z + attention(c, "sigmoid", x, heads=2, allowed=causal(5), talking=("scores", "weights"), weights=sigmoid)
    return z + attention(c, "weights", x, heads=2, allowed=padding, talking=("weights",), softcap=0.5)


@case
def rotated(c):
    x = x_of(c)
    z = attention(c, "attention", x, heads=2, allowed=causal(5), prepare=lambda of, _: rope(of))
    return z + attention(c, "slowly", x, heads=2, kv_heads=1, prepare=lambda of, _: rope(of, 500000.0))


@case
def biased_by_distance(c):
    x = x_of(c, width=6)
    z = attention(c, "alibi", x, heads=3, allowed=causal(5), biases=alibi(3, 5, 5))
    table = c.weight("both.rel_pos_bias", 8, 2)
    z = z + attention(c, "both", x, heads=2, biases=t5_bias(table, 5, 5, True, 4))
    table = c.weight("past.rel_pos_bias", 4, 2)
    return z + attention(c, "past", x, heads=2, allowed=causal(5), biases=t5_bias(table, 5, 5, False, 4))


@case
def normed_queries_and_keys(c):
    x = x_of(c)

    def rms(of, which):
        return rope(F.rms_norm(of, of.shape[-1:], c.weight(f"attention.{which}_norm", 2), 1e-6))

    z = attention(c, "attention", x, heads=2, kv_heads=1, prepare=rms)
    unit = lambda of, _: of / (of.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt()
    return z + attention(c, "unit", x, heads=2, prepare=unit, scale=10.0)


@case
def capped(c):
    x = x_of(c)
    return attention(c, "attention", x, heads=2, allowed=causal(5), softcap=0.5, biases=alibi(2, 5, 5))


@case
def scores_of_other_kinds(c):
    x = x_of(c)
    z = attention(c, "dot", x, heads=2, scale=1.0)
    w = c.weight("additive.score_proj", 2, 3)
    additive = lambda q, k: (torch.tanh(q[:, :, :, None] + k[:, :, None]) * w[:, None, None]).sum(-1)
    z = z + attention(c, "additive", x, heads=2, width=3, value_width=2, scores=additive)
    between = c.weight("bilinear.score_proj", 2, 2, 2)
    bilinear = lambda q, k: q @ between @ k.transpose(-2, -1)
    return z + attention(c, "bilinear", x, heads=2, scores=bilinear)


@case
def normalizers(c):
    x = x_of(c)
    sink = c.weight("sink.sink", 2)
    kinds = {
        "softmax1": lambda s, allowed: softmax_with_sink(s, allowed, torch.zeros(1, 1, 1)),
        "sink": lambda s, allowed: softmax_with_sink(s, allowed, sink[:, None, None]),
        "sigmoid": lambda s, allowed: torch.where(allowed, torch.sigmoid(s), 0.0),
        "relu": lambda s, allowed: torch.where(allowed, torch.relu(s), 0.0),
        "relu_squared": lambda s, allowed: torch.where(allowed, torch.relu(s) ** 2, 0.0),
    }
    y = [attention(c, name, x, heads=2, allowed=causal(5), weights=weights) for name, weights in kinds.items()]
    return torch.cat(y, -1)


@case
def sparse_normalizers(c):
    x = x_of(c)
    z = attention(c, "sparsemax", x, heads=2, weights=lambda s, _: sparsemax(s))
    return z + attention(c, "entmax", x, heads=2, weights=lambda s, _: entmax15(s))


@case
def of_a_body(c):
    x, gate = x_of(c), c.data("gate", 2, 5)
    slope = c.weight("attention.slope", 2)
    d = distance(5, 5)
    biases = gate[:, None, None] - slope[:, None, None] * d.abs()
    return attention(c, "attention", x, heads=2, allowed=(d >= 0) | (d == -2), biases=biases)


@case
def nobody_to_attend_to(c):
    """The first sequence has no keys."""
    x, lens = x_of(c), c.numbers("lens", [0, 2])
    padding = (torch.arange(5) < lens[:, None])[:, None, None].expand(2, 2, 5, 5)
    zeros = lambda s, allowed: softmax(s, allowed)
    return attention(c, "attention", x, heads=2, allowed=padding, weights=zeros)


@case
def of_one_sequence(c):
    return attention(c, "attention", c.floats("x", 5, 4), heads=2, allowed=causal(5), prepare=lambda of, _: rope(of))
