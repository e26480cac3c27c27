"""Small networks with adapters of PEFT, what they compute, and their gradients.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 peft numpy safetensors
    venv/bin/python tests/weights/lora/generate.py

In this folder and in `cross/`, `base.safetensors` is the network without adapters, `adapter_model.safetensors` and `adapter_config.json`
are what PEFT saves, and `run.safetensors` has inputs, outputs and gradients, on the CPU, on one thread, in f32.
"""

from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
WIDTH, HEADS, HIDDEN, LAYERS, CLASSES, BATCH, SEQ, MEMORY = 8, 2, 12, 2, 5, 2, 7, 6


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"]:
            setattr(self, name, nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        heads = [
            proj(x).view(BATCH, SEQ, HEADS, -1).transpose(1, 2)
            for proj in [self.q_proj, self.k_proj, self.v_proj]
        ]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.o_proj(attended.transpose(1, 2).reshape(BATCH, SEQ, WIDTH))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.layer_norm_2 = nn.LayerNorm(WIDTH)
        self.feed_forward = FeedForward()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(self.layer_norm(x))
        x = x + self.feed_forward(self.layer_norm_2(x))
        return x + self.linear(x)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Cross(nn.Module):
    """Attention to a memory of another width, with one head of keys and values."""

    def __init__(self):
        super().__init__()
        for name, sizes in {
            "q_proj": (WIDTH, WIDTH),
            "k_proj": (MEMORY, WIDTH // HEADS),
            "v_proj": (MEMORY, WIDTH // HEADS),
            "o_proj": (WIDTH, WIDTH),
        }.items():
            setattr(self, name, nn.Linear(*sizes))

    def forward(self, x, memory):
        q = self.q_proj(x).view(BATCH, SEQ, HEADS, -1).transpose(1, 2)
        k, v = [
            proj(memory)[:, None].expand(-1, HEADS, -1, -1)
            for proj in [self.k_proj, self.v_proj]
        ]
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.o_proj(attended.transpose(1, 2).reshape(BATCH, SEQ, WIDTH))


class CrossBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_norm = nn.LayerNorm(WIDTH)
        self.attention = Cross()

    def forward(self, x, memory):
        return x + self.attention(self.layer_norm(x), memory)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(CrossBlock() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, memory):
        for block in self.blocks:
            x = block(x, memory)
        return self.head(x)


def save(folder, network, shapes, config):
    """The files of a network with new adapters that are not zero, and random inputs of these shapes."""
    folder.mkdir(exist_ok=True)
    base = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_file(base, folder / "base.safetensors", {"format": "pt"})
    model = get_peft_model(network, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.5)
            elif "modules_to_save" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    inputs = {name: torch.randn(shape, requires_grad=True) for name, shape in shapes.items()}
    y = model(*inputs.values())
    y.square().mean().backward()
    run = inputs | {"y": y} | {f"d_{name}": tensor.grad for name, tensor in inputs.items()}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            for part in ["base_model.model.", ".default", ".modules_to_save"]:
                name = name.replace(part, "")
            run["d_" + name] = parameter.grad
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    merged = model.merge_and_unload()
    run |= {f"merged.{name}": tensor for name, tensor in merged.state_dict().items()}
    run = {name: tensor.detach().contiguous().clone() for name, tensor in run.items()}
    save_file(run, folder / "run.safetensors")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    network = Network()
    targets = ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj", "linear", "head"]
    config = LoraConfig(r=2, lora_alpha=6, target_modules=targets)
    save(HERE, network, {"x": (BATCH, SEQ, WIDTH)}, config)

    torch.manual_seed(4)
    config = LoraConfig(
        r=3,
        lora_alpha=5,
        use_rslora=True,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        modules_to_save=["head", "layer_norm"],
    )
    shapes = {"x": (BATCH, SEQ, WIDTH), "memory": (BATCH, SEQ - 2, MEMORY)}
    save(HERE / "cross", Reader(), shapes, config)


main()
