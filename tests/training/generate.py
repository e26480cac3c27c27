"""The learning rates of PyTorch's schedulers, for `rates.rs`, in `schedules.json`.

    venv/bin/python tests/training/generate.py
"""

import json
import pathlib
import warnings

import torch
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, SequentialLR

HIGHEST, LOWEST, WARM_UP, STEPS, DECAY = 0.3, 0.03, 4, 12, 5


def rates(parts, milestones):
    """Of each step. A scheduler counts from 0, and the warm-up has its highest rate in step `WARM_UP`."""
    optimizer = torch.optim.SGD([torch.zeros(1, dtype=torch.float64)], lr=HIGHEST)
    up = LinearLR(optimizer, 1 / WARM_UP, 1.0, total_iters=WARM_UP - 1)
    schedulers = [up, *(part(optimizer) for part in parts)]
    scheduler = SequentialLR(optimizer, schedulers, milestones=milestones)
    found = []
    for _ in range(STEPS):
        found.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return found


def fall(steps):
    return lambda optimizer: LinearLR(optimizer, 1.0, LOWEST / HIGHEST, total_iters=steps)


def stay(optimizer):
    return ConstantLR(optimizer, 1.0, total_iters=0)


def cosine(optimizer):
    return CosineAnnealingLR(optimizer, T_max=STEPS - WARM_UP, eta_min=LOWEST)


warnings.simplefilter("ignore")
end = WARM_UP - 1
schedules = {
    "cosine": rates([cosine], [end]),
    "linear": rates([fall(STEPS - WARM_UP)], [end]),
    "constant": rates([stay], [end]),
    "wsd": rates([stay, fall(DECAY)], [end, STEPS - DECAY - 1]),
}
path = pathlib.Path(__file__).with_name("schedules.json")
path.write_text(json.dumps(schedules, indent=1) + "\n")
