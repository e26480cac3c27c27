"""A small network with adapters of PEFT, what it computes, and its gradients.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 peft numpy safetensors
    venv/bin/python tests/weights/lora/generate.py

`base.safetensors` is the network without adapters, `adapter_model.safetensors` and `adapter_config.json` are what PEFT saves, and
`run.safetensors` has inputs, outputs and gradients, on the CPU, on one thread, in f32.
"""

from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
WIDTH, HEADS, HIDDEN, LAYERS, CLASSES, BATCH, SEQ = 8, 2, 12, 2, 5, 2, 7


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


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    network = Network()
    base = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_file(base, HERE / "base.safetensors", {"format": "pt"})
    targets = ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj", "linear", "head"]
    config = LoraConfig(r=2, lora_alpha=6, target_modules=targets)
    model = get_peft_model(network, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.5)
    x = torch.randn(BATCH, SEQ, WIDTH, requires_grad=True)
    y = model(x)
    y.square().mean().backward()
    run = {"x": x, "y": y, "d_x": x.grad}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            run["d_" + name.replace("base_model.model.", "").replace(".default", "")] = parameter.grad
    model.save_pretrained(HERE)
    (HERE / "README.md").unlink()
    merged = model.merge_and_unload()
    run |= {f"merged.{name}": tensor for name, tensor in merged.state_dict().items()}
    run = {name: tensor.detach().contiguous().clone() for name, tensor in run.items()}
    save_file(run, HERE / "run.safetensors")


main()
