"""Small inputs of layers, and what PyTorch and Hugging Face compute of them.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 numpy safetensors
    venv/bin/python tests/reference_values/generate.py

`values.safetensors` has the tensors of all cases: `CASE.NAME`. All is computed in f32, on the CPU, on one thread. Seeds are fixed; another
version of a library may give other numbers.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import GemmaConfig, LlamaConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP, GemmaRMSNorm
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as rotate_neighbours
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

HERE = Path(__file__).parent
BATCH, SEQ, D_MODEL, HEADS = 2, 12, 32, 2
HEAD_DIM = D_MODEL // HEADS
torch.set_num_threads(1)
tensors = {}


def random(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def save(case, **named):
    for name, tensor in named.items():
        tensors[f"{case}.{name}"] = tensor.detach().contiguous().clone()


def rotary(dims, **parameters):
    """The cosines and sines of `transformers`, for vectors of which `dims` coordinates are rotated."""
    config = LlamaConfig(
        hidden_size=D_MODEL,
        num_attention_heads=HEADS,
        head_dim=dims,
        max_position_embeddings=parameters.pop("max_position_embeddings", 64),
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, **parameters},
    )
    return LlamaRotaryEmbedding(config)


def attention(case, rotate):
    """Causal attention of queries and keys that `rotate` has changed; the projections are the same in all cases."""
    x = tensors["rope.x"]
    of = lambda name: tensors[f"rope.{name}"]
    heads = lambda t: t.view(BATCH, SEQ, HEADS, HEAD_DIM).transpose(1, 2)
    q, k, v = (heads(F.linear(x, of(name))) for name in ("q", "k", "v"))
    q, k = rotate(q, k)
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    save(case, y=F.linear(attended.transpose(1, 2).reshape(BATCH, SEQ, D_MODEL), of("o")))


def half_split(positions=None, dims=HEAD_DIM, **parameters):
    rope = rotary(dims, **parameters)
    positions = torch.arange(SEQ)[None] if positions is None else positions

    def rotate(q, k):
        cos, sin = rope(q, positions)
        turned = apply_rotary_pos_emb(q[..., :dims], k[..., :dims], cos, sin)
        return (torch.cat((new, old[..., dims:]), -1) for new, old in zip(turned, (q, k)))

    return rotate


def interleaved(dims=HEAD_DIM):
    inv_freq = rotary(dims).inv_freq
    angles = torch.arange(SEQ)[None, :, None] * inv_freq

    def turned(x):
        # GPT-J has the heads behind the tokens.
        x = x.transpose(1, 2)
        x = torch.cat((rotate_neighbours(x[..., :dims], angles.sin(), angles.cos()), x[..., dims:]), -1)
        return x.transpose(1, 2)

    return lambda q, k: (turned(q), turned(k))


def rope():
    save("rope", x=random(BATCH, SEQ, D_MODEL, seed=1))
    for seed, name in enumerate("qkvo"):
        save("rope", **{name: 0.4 * random(D_MODEL, D_MODEL, seed=10 + seed)})
    left_padded = torch.stack((torch.arange(SEQ), (torch.arange(SEQ) - 5).clamp(min=0)))
    far = torch.arange(SEQ)[None] * 7 + 100
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    longrope = dict(
        rope_type="longrope",
        factor=4.0,
        short_factor=[1.0, 1.02, 1.03, 1.05, 1.1, 1.25, 1.5, 2.0],
        long_factor=[1.05, 1.1, 1.25, 1.6, 2.5, 5.0, 9.0, 15.0],
    )
    cases = {
        "default": half_split(),
        "theta": half_split(rope_theta=500.0),
        "linear": half_split(rope_type="linear", factor=2.5),
        "dynamic_ntk": half_split(rope_type="dynamic", factor=3.0, max_position_embeddings=8),
        "dynamic_ntk_short": half_split(rope_type="dynamic", factor=3.0, max_position_embeddings=64),
        "llama3": half_split(
            rope_type="llama3",
            rope_theta=50.0,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
        "yarn": half_split(**yarn),
        "yarn_attention_factor": half_split(**yarn, attention_factor=1.3, beta_fast=8.0, beta_slow=2.0),
        "yarn_mscale": half_split(**yarn, mscale=0.7, mscale_all_dim=1.4, truncate=False),
        "longrope": half_split(**longrope, original_max_position_embeddings=8),
        "longrope_short": half_split(**longrope, original_max_position_embeddings=64),
        "longrope_attention_factor": half_split(
            dims=4,
            rope_type="longrope",
            factor=4.0,
            short_factor=[1.0, 1.25],
            long_factor=[1.5, 2.5],
            original_max_position_embeddings=11,
            attention_factor=1.3,
        ),
        "dims": half_split(dims=6),
        "interleaved": interleaved(),
        "interleaved_dims": interleaved(dims=10),
        "left_padded": half_split(left_padded),
        "far": half_split(far, dims=8),
    }
    for name, rotate in cases.items():
        attention(f"rope.{name}", rotate)


def with_gradients(case, function, x, **learned):
    """`y`, and the gradients of `sum(y * d_y)`."""
    x = x.clone().requires_grad_()
    learned = {name: tensor.clone().requires_grad_() for name, tensor in learned.items()}
    y = function(x, **learned)
    d_y = random(*y.shape, seed=99)
    names = ["x", *learned]
    gradients = torch.autograd.grad((y * d_y).sum(), [x, *learned.values()])
    save(case, x=x, y=y, d_y=d_y, **learned)
    save(case, **{f"d_{name}": gradient for name, gradient in zip(names, gradients)})


def norms():
    tokens, gain, bias = 3 * random(2, 5, 8, seed=2) + 1, 1 + random(8, seed=3), random(8, seed=4)
    with_gradients("layer_norm.plain", lambda x: F.layer_norm(x, (8,)), tokens)
    with_gradients("layer_norm.unbiased", lambda x, weight: F.layer_norm(x, (8,), weight), tokens, weight=gain)
    with_gradients("rms_norm.plain", lambda x: F.rms_norm(x, (8,), eps=1e-6), tokens)
    gemma = GemmaRMSNorm(8, eps=1e-6)

    def one_plus(x, weight):
        return torch.func.functional_call(gemma, {"weight": weight}, (x,))

    with_gradients("rms_norm.one_plus", one_plus, tokens, weight=gain - 1)
    # Every token by itself.
    vectors = lambda x, **learned: F.group_norm(x.flatten(0, -2), 2, **learned).view_as(x)
    with_gradients("group_norm.tokens", vectors, tokens, weight=gain, bias=bias)
    images = random(2, 8, 3, 5, seed=5) - 2
    with_gradients("group_norm.images", lambda x, **learned: F.group_norm(x, 2, **learned), images, weight=gain, bias=bias)
    with_gradients("group_norm.plain", lambda x: F.group_norm(x, 4), random(2, 8, 7, seed=6))


def feed_forwards():
    x = random(2, 5, 8, seed=7)
    config = GemmaConfig(hidden_size=8, intermediate_size=12, hidden_activation="gelu_pytorch_tanh")
    mlp = GemmaMLP(config)
    names = ["gate_proj", "up_proj", "down_proj"]
    weights = {name: 0.5 * random(*getattr(mlp, name).weight.shape, seed=20 + seed) for seed, name in enumerate(names)}

    def gemma(x, **weights):
        return torch.func.functional_call(mlp, {f"{name}.weight": weight for name, weight in weights.items()}, (x,))

    with_gradients("feed_forward.geglu_tanh", gemma, x, **weights)
    unbiased = lambda x, up_proj, down_proj: F.linear(F.relu(F.linear(x, up_proj)), down_proj)
    with_gradients("feed_forward.unbiased", unbiased, x, up_proj=weights["up_proj"], down_proj=weights["down_proj"])


rope()
norms()
feed_forwards()
save_file(tensors, HERE / "values.safetensors")
