"""Attentions of the running program, and what PyTorch computes of them.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 numpy safetensors
    venv/bin/python tests/run_time_attention/generate.py

`values.safetensors` has the tensors of all cases: `CASE/NAME`. All is computed in f64, on the CPU. `flex_attention` has no derivative there,
so gradients are those of the same formula in plain operations, whose output is compared with that of `flex_attention`.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HERE = Path(__file__).parent
BATCH, HEADS, KV_HEADS, QUERY, KEY, WIDTH, VALUE_WIDTH = 2, 4, 2, 5, 7, 3, 2
tensors = {}


def random(*shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs():
    return {
        "q": random(BATCH, HEADS, QUERY, WIDTH, seed=1),
        "k": random(BATCH, KV_HEADS, KEY, WIDTH, seed=2),
        "v": random(BATCH, KV_HEADS, KEY, VALUE_WIDTH, seed=3),
        "d": random(BATCH, HEADS, QUERY, VALUE_WIDTH, seed=4),
    }


def save(case, compute, **more):
    given = {**inputs(), **more}
    leaves = [name for name, x in given.items() if x.is_floating_point() and name != "d"]
    for name in leaves:
        given[name].requires_grad_()
    y, *others = compute(**{name: x for name, x in given.items() if name != "d"})
    loss = (y * given["d"]).sum() + sum(other.square().sum() for other in others)
    loss.backward()
    results = {"y": y, **{f"other_{i}": other for i, other in enumerate(others)}}
    results |= {f"d_{name}": given[name].grad for name in leaves}
    for name, x in {**given, **results}.items():
        tensors[f"{case}/{name}"] = x.detach().clone().contiguous()


def wide(*vectors):
    """Those of key heads, for every query head."""
    return [x.repeat_interleave(HEADS // KV_HEADS, 1) for x in vectors]


def sdpa(q, k, v, **options):
    return (F.scaled_dot_product_attention(q, *wide(k, v), **options),)


save("plain", sdpa)


def with_weights(q, k, v):
    keys, values = wide(k, v)
    weights = (q @ keys.mT / WIDTH**0.5).softmax(-1)
    return weights @ values, weights


save("weights", with_weights)
save("causal", lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.3))
save("lower_right", lambda q, k, v: sdpa(q, k, v, attn_mask=causal_lower_right(QUERY, KEY)))
mask = random(BATCH, HEADS, QUERY, KEY, seed=5) > 0
mask[..., 0] = True  # PyTorch gives NaN to a query without a key
save("mask", lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask), mask=mask)
of_heads = random(HEADS, QUERY, KEY, seed=7) > 0
of_heads[..., 0] = True
save("mask_of_heads", lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask), mask=of_heads)
save("bias", lambda q, k, v, bias: sdpa(q, k, v, attn_mask=bias), bias=random(HEADS, QUERY, KEY, seed=6))


def score_mod(score, b, h, q_idx, kv_idx):
    return 2 * torch.tanh(score / 2) - 0.25 * (h + 1) * (q_idx - kv_idx).abs()


def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx <= q_idx + b) & (q_idx - kv_idx < 4)


def flex(q, k, v):
    b, h, q_idx, kv_idx = (
        torch.arange(size).view([-1 if i == axis else 1 for i in range(4)])
        for axis, size in enumerate((BATCH, HEADS, QUERY, KEY))
    )
    keys, values = wide(k, v)
    score = score_mod(q @ keys.mT / WIDTH**0.5, b, h, q_idx, kv_idx)
    score = score.masked_fill(~mask_mod(b, h, q_idx, kv_idx), -torch.inf)
    y, lse = score.softmax(-1) @ values, score.logsumexp(-1)
    with torch.no_grad():
        block_mask = create_block_mask(mask_mod, BATCH, None, QUERY, KEY, device="cpu")
        found = flex_attention(
            *(x.detach() for x in (q, k, v)), score_mod=score_mod, block_mask=block_mask, enable_gqa=True, return_lse=True
        )
        torch.testing.assert_close(found, (y.detach(), lse.detach()))
    return y, lse


save("flex", flex)


def softmax_up_to_lengths():
    """PyTorch gives NaN to a row without a valid number; the others have at least one."""
    x, d = random(BATCH, 3, QUERY, KEY, seed=8).requires_grad_(), random(BATCH, 3, QUERY, KEY, seed=9)
    lens = torch.randint(1, KEY + 1, (BATCH, QUERY), generator=torch.Generator().manual_seed(10))
    y = x.masked_fill(torch.arange(KEY) >= lens[:, None, :, None], -torch.inf).softmax(-1)
    (y * d).sum().backward()
    for name, of in {"x": x, "d": d, "lens": lens.double(), "y": y, "d_x": x.grad}.items():
        tensors[f"masked_softmax/{name}"] = of.detach().clone().contiguous()


softmax_up_to_lengths()
save_file(tensors, HERE / "values.safetensors")
