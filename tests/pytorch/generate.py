"""The values of PyTorch for every operation of the language, and for models of papers, in float64.

    python -m venv venv
    venv/bin/pip install torch==2.15.0 numpy safetensors
    venv/bin/python tests/pytorch/generate.py

`layers.py` is beside `layers.rs`, and makes `layers.safetensors`, and so on. A function with `@case` is a case of the test with the
same name: it makes inputs and parameters, and returns one output, or two. The file has, for each case,

- the inputs and parameters, whose numbers depend on the names of the module, the case and the tensor alone;
- `output` and `output 2`;
- `gradients` of all floats, one after the other in the order of their names, of the sum of all outputs' elements, each times the factor
  that `weighted_sum` of the tests has for it.

Another version of PyTorch may round differently; the tests have a tolerance.
"""

import importlib
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent


def write(path):
    name = ".".join(path.relative_to(HERE).with_suffix("").parts)
    module = importlib.import_module(name)
    cases = getattr(module, "CASES", None)
    if cases is None:
        return
    tensors = {}
    for function in cases:
        for key, tensor in function.run(name).items():
            tensors[f"{function.name}/{key}"] = tensor.detach().contiguous().clone()
    save_file(tensors, path.with_suffix(".safetensors"), {"torch": torch.__version__})
    print(f"{name}: {len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    sys.path.insert(0, str(HERE))
    for path in sorted(HERE.rglob("*.py")):
        if path != Path(__file__):
            write(path)
