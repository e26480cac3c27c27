"""Times one piece of work in PyTorch, as `examples/peer.rs` times it in attn, and prints the same line of JSON.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 numpy
    OMP_NUM_THREADS=2 venv/bin/python examples/peer/pytorch.py w5_gru
    OMP_NUM_THREADS=2 venv/bin/python examples/peer/pytorch.py w5_gru compile

Cases are those of `peer.rs` from `w5` on: forward, and backward from a given gradient, to the inputs and the parameters. With `_forward` behind
the name of a layer it is the forward pass alone.
"""

import json
import os
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))


def times(run):
    """The milliseconds of each run. If runs are slow there are fewer."""
    for _ in range(2):
        run()
    start, found = time.perf_counter(), []
    while True:
        before = time.perf_counter()
        run()
        now = time.perf_counter()
        found.append(1e3 * (now - before))
        count, seconds = len(found), now - start
        if count >= 200 or (count >= 5 and seconds >= 4) or (count >= 2 and seconds >= 25):
            return found


def layer(module, *shape):
    """A module of one input, and its input."""
    return module, [torch.randn(shape, requires_grad=True)]


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(256, 256, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Residual(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(c, c, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = (nn.GroupNorm(8, c) for _ in range(2))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(y)))


def heads(length):
    return [torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3)]


def without_weights(q, k, v):
    return F.scaled_dot_product_attention(q, k, v), 0.0


def with_weights(q, k, v):
    """PyTorch has no fused attention that returns its weights: `nn.MultiheadAttention` computes them like this."""
    weights = torch.softmax(q @ k.mT * 64**-0.5, -1)
    return weights @ v, loss_of_weights(weights)


def loss_of_weights(weights):
    return (weights * weights).mean(-1).sum()


class Attention(nn.Module):
    """Four projections with biases and `scaled_dot_product_attention`."""

    def __init__(self, d=512, heads=8):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x):
        q, k, v = (of(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for of in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


def case(name):
    """What is run, and its inputs."""
    if name == "w5_gru":
        return layer(Recurrent(nn.GRU), 8, 128, 256)
    if name == "w5_lstm":
        return layer(Recurrent(nn.LSTM), 8, 128, 256)
    if name == "w6_conv1d":
        first, second = nn.Conv1d(80, 384, 3, padding=1), nn.Conv1d(384, 384, 3, stride=2, padding=1)
        return layer(nn.Sequential(first, nn.GELU(), second), 1, 80, 3000)
    if name == "w6_conv1d_second":
        return layer(nn.Conv1d(384, 384, 3, stride=2, padding=1), 1, 384, 3000)
    if name == "w6_conv2d":
        return layer(nn.Conv2d(3, 384, 16, stride=16), 8, 3, 224, 224)
    if name == "w6_residual":
        return layer(Residual(), 8, 64, 56, 56)
    if name == "w6_depthwise":
        return layer(nn.Conv2d(96, 96, 7, padding=3, groups=96), 8, 96, 56, 56)
    if of := re.fullmatch(r"w7_no_weights_s(\d+)", name):
        return without_weights, heads(int(of[1]))
    if of := re.fullmatch(r"w7_weights_s(\d+)", name):
        return with_weights, heads(int(of[1]))
    if of := re.fullmatch(r"w7_loss_s(\d+)", name):
        return loss_of_weights, [torch.rand(1, 8, int(of[1]), int(of[1]), requires_grad=True)]
    if name in ("w8_attention", "w8_attend"):
        return layer(Attention(), 4, 512, 512)
    sys.exit(f"there is no case `{name}`")


def peak_mb():
    """The most memory that the process had, where the system tells."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None


def main(name, form="eager"):
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    layer = name.removesuffix("_forward")
    forward, inputs = case(layer)
    leaves = inputs + (list(forward.parameters()) if isinstance(forward, nn.Module) else [])
    compute = torch.compile(forward) if form == "compile" else forward
    with torch.no_grad():
        result = forward(*inputs)
    y = result[0] if isinstance(result, tuple) else result
    upstream = torch.randn_like(y)

    def run_forward():
        with torch.no_grad():
            compute(*inputs)

    def run_both():
        for leaf in leaves:
            leaf.grad = None
        result = compute(*inputs)
        if isinstance(result, tuple):
            y, loss = result
            ((y * upstream).sum() + loss).backward()
        else:
            result.backward(upstream)

    found = times(run_both if layer == name else run_forward)
    line = {
        "peer": f"torch-{form}",
        "workload": name,
        "median_ms": statistics.median(found),
        "min_ms": min(found),
        "max_ms": max(found),
        "peak_rss_mb": peak_mb(),
        "extra": {"runs": len(found), "version": torch.__version__, "threads": torch.get_num_threads()},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
