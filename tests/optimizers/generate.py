"""Steps of optimizers on given gradients, as PyTorch and the packages of other authors take them, in f64.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 numpy schedulefree==1.4.1 lion-pytorch==0.2.5
    venv/bin/python tests/optimizers/generate.py

`values.json` has the parameters and gradients, and the parameters after each step of every case. Seeds are fixed.
"""

import json
from pathlib import Path

import torch
from lion_pytorch import Lion
from schedulefree import AdamWScheduleFree
from torch.optim import SGD, Adafactor, AdamW, Muon
from torch.optim._muon import _adjust_lr

STEPS = 6
SHAPES = {"matrix": (4, 3), "vector": (5,), "stack": (2, 3, 4)}
torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(7)
starts = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
gradients = [
    {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    for _ in range(STEPS)
]
# Gradients that are often 0 or of one size.
for step in gradients:
    step["vector"][0] = 0.0
    step["vector"][1] = 1e-4

# `torch.optim.Muon` computes its iteration in bf16. The same formulas in f64 are the reference.
to = torch.Tensor.to


def without_bf16(tensor, *arguments, **named):
    if named.get("dtype") == torch.bfloat16:
        named["dtype"] = tensor.dtype
    return to(tensor, *arguments, **named)


def numbers(tensors):
    return {name: tensor.detach().flatten().tolist() for name, tensor in tensors.items()}


# The steps in which a parameter is frozen: from the start, and after it was trained.
FROZEN = {"matrix": range(1, 4), "vector": range(3, 6), "stack": range(0)}


def run(make, rate=lambda step: 1.0, mean=False, freezes=False):
    """The parameters after each step; with `mean`, those of `eval()` after the last one."""
    parameters = {name: start.clone().requires_grad_() for name, start in starts.items()}
    optimizers = make(parameters)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    found = []
    for index, step in enumerate(gradients):
        for name, parameter in parameters.items():
            is_frozen = freezes and index + 1 in FROZEN[name]
            parameter.grad = None if is_frozen else step[name].clone()
        for optimizer, of_groups in zip(optimizers, rates):
            for group, lr in zip(optimizer.param_groups, of_groups):
                group["lr"] = lr * rate(index + 1)
            optimizer.step()
        found.append(numbers(parameters))
    if mean:
        optimizers[0].eval()
        found.append(numbers(parameters))
    return found


def one(optimizer, **settings):
    return lambda parameters: [optimizer(list(parameters.values()), **settings)]


def schedule_free(**settings):
    def make(parameters):
        optimizer = AdamWScheduleFree(list(parameters.values()), foreach=False, **settings)
        optimizer.train()
        return [optimizer]

    return make


def muon(**settings):
    def make(parameters):
        others = [parameter for name, parameter in parameters.items() if name != "matrix"]
        rest = AdamW(others, lr=0.01, betas=(0.8, 0.95), weight_decay=0.2)
        return [Muon([parameters["matrix"]], **settings), rest]

    return make


cases = {
    "adamw": run(one(AdamW, lr=0.03, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2), lambda step: 1 / step),
    "sgd": run(one(SGD, lr=0.1, weight_decay=0.3)),
    "sgd_momentum": run(one(SGD, lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.3), lambda step: 1 / step),
    "sgd_nesterov": run(one(SGD, lr=0.1, momentum=0.9, nesterov=True)),
    "lion": run(one(Lion, lr=0.01, betas=(0.8, 0.95), weight_decay=0.5)),
    "adafactor": run(one(Adafactor, lr=0.05, weight_decay=0.1)),
    "adafactor_clipped": run(one(Adafactor, lr=0.5, beta2_decay=-0.5, eps=(1e-2, 2.0), d=1.0)),
    "schedule_free": run(schedule_free(lr=0.03, betas=(0.8, 0.95), weight_decay=0.2), mean=True),
    "schedule_free_warm": run(
        schedule_free(lr=0.03, warmup_steps=3, r=0.5, weight_lr_power=1.5), mean=True
    ),
}
cases |= {
    "adamw_freezing": run(one(AdamW, lr=0.03, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2), freezes=True),
    "sgd_freezing": run(one(SGD, lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.3), freezes=True),
    "adafactor_freezing": run(one(Adafactor, lr=0.05, weight_decay=0.1), freezes=True),
}
torch.Tensor.to = without_bf16
cases["muon"] = run(muon(lr=0.05))
cases["muon_heavy"] = run(
    muon(lr=0.05, momentum=0.9, nesterov=False, weight_decay=0.3, ns_steps=3, adjust_lr_fn="match_rms_adamw")
)
torch.Tensor.to = to

values = {
    "shapes": SHAPES,
    "starts": numbers(starts),
    "gradients": [numbers(step) for step in gradients],
    "cases": cases,
    # Of steps of Muon, for a wide matrix and a tall one.
    "lengths": {
        scale: [_adjust_lr(0.05, scale, torch.Size(shape)) for shape in [(2, 8), (8, 2)]]
        for scale in ["original", "match_rms_adamw", "spectral_unclamped"]
    },
}
path = Path(__file__).parent / "values.json"
path.write_text(json.dumps(values, indent=1) + "\n")
