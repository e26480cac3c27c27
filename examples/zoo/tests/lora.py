"""Adapters of PEFT for the tiny Llama of `generate.py`, and what it computes with them.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 peft numpy safetensors
    venv/bin/python examples/zoo/tests/lora.py

`llama_lora/` is what `save_pretrained` writes. `llama_lora.run.safetensors` has inputs, logits, a loss, the gradients of the adapters, and
the likeliest tokens behind a prompt: f32, on the CPU, on one thread.
"""

import shutil
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

HERE = Path(__file__).parent
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / "llama.json", Path(folder, "config.json"))
        shutil.copy(HERE / "llama.safetensors", Path(folder, "model.safetensors"))
        model = LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager")
    model = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules=TARGETS))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    run = load_file(HERE / "llama.run.safetensors")
    run = {name: run[name].long() for name in ["tokens", "targets", "prompt", "new"]}
    logits = model(run["tokens"]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), run["targets"].flatten())
    loss.backward()
    tokens = run["prompt"]
    with torch.no_grad():
        for _ in range(run["new"].numel()):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)
    run |= {"logits": logits, "loss": loss, "new": tokens[0, run["prompt"].numel() :]}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            run["gradient." + name.replace(".default", "")] = parameter.grad
    folder = HERE / "llama_lora"
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    # A path of this machine.
    config = folder / "adapter_config.json"
    lines = config.read_text().splitlines()
    lines = [line for line in lines if "base_model_name_or_path" not in line]
    config.write_text("\n".join(lines) + "\n")
    run = {name: tensor.detach().float().contiguous().clone() for name, tensor in run.items()}
    save_file(run, HERE / "llama_lora.run.safetensors")


main()
