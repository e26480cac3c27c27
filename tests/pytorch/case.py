"""A case of a file: its inputs and parameters by name, and what is computed from them."""

import zlib

import torch


def scattered(name, count):
    """The numbers of `scattered` in `tests/support/numbers.rs`."""
    mask = (1 << 64) - 1
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x0100000001B3 & mask
    numbers = []
    for i in range(count):
        z = seed + (i + 1) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        z ^= z >> 31
        numbers.append((z >> 11) / (1 << 52) - 1)
    return torch.tensor(numbers, dtype=torch.float64)


class Case:
    """What a function with `@case` gets: it makes the inputs and parameters."""

    def __init__(self, module, name):
        self.place = f"{module}.{name}"
        self.given = {}
        self.leaves = {}

    def _noise(self, name, shape):
        seed = zlib.crc32(f"{self.place}.{name}".encode())
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        # They are stored as f32, and compute in f64.
        return noise.float().double()

    def _leaf(self, name, numbers):
        assert name not in self.given, f"{self.place}: two tensors are named {name}"
        self.given[name] = numbers.float()
        self.leaves[name] = numbers.float().double().requires_grad_()
        return self.leaves[name]

    def floats(self, name, *shape, scale=1.0):
        """An input with a gradient."""
        return self._leaf(name, scale * self._noise(name, shape))

    def data(self, name, *shape):
        """Floats without a gradient."""
        self.given[name] = self._noise(name, shape).float()
        return self.given[name].double()

    def param(self, name, *shape):
        """A parameter. Gains are around 1, the others around 0."""
        noise = self._noise(name, shape)
        is_gain = "norm" in name and name.endswith("weight")
        return self._leaf(name, 1 + 0.3 * noise if is_gain else 0.4 * noise)

    def shared(self):
        """The same case, where a parameter that is there is used again."""
        return Shared(self)

    def weight(self, name, *shape):
        """A parameter whose field is a module with a weight."""
        return self.param(f"{name}.weight", *shape)

    def numbers(self, name, numbers):
        """An input with these numbers: ids, lengths or marks."""
        self.given[name] = torch.as_tensor(numbers).float()
        return torch.as_tensor(numbers)

    def ids(self, name, below, *shape):
        seed = zlib.crc32(f"{self.place}.{name}".encode())
        return self.numbers(name, torch.randint(below, shape, generator=torch.Generator().manual_seed(seed)))

    def marks(self, name, *shape):
        """About two thirds are true; in the second row of several none is."""
        marks = self._noise(name, shape) > -0.4
        if shape[0] > 1:
            marks[1] = False
        return self.numbers(name, marks)


class Shared(Case):
    """A case whose parameters are used again by their names, as those of `share = true`."""

    def __init__(self, case):
        self.place, self.given, self.leaves = case.place, case.given, case.leaves

    def param(self, name, *shape):
        return self.leaves.get(name) if name in self.leaves else super().param(name, *shape)


def case(function):
    """Adds a case to the module of the function."""
    cases = function.__globals__.setdefault("CASES", [])
    cases.append(function)
    function.name = function.__name__

    def run(module):
        made = Case(module, function.name)
        outputs = function(made)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        loss = 0
        results = {}
        for number, output in enumerate(outputs, 1):
            factors = scattered("factors of the loss", output.numel()).reshape(output.shape)
            loss = loss + (output * factors).sum()
            results["output" if number == 1 else f"output {number}"] = output
        leaves = [made.leaves[name] for name in sorted(made.leaves)]
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        gradients = [torch.zeros_like(leaf) if of is None else of for leaf, of in zip(leaves, gradients)]
        # One tensor, as the header of a file takes more bytes for a small one than its numbers.
        results["gradients"] = torch.cat([of.flatten() for of in gradients])
        return made.given | results

    function.run = run
    return function
