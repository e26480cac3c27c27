"""Checks ONNX files, runs them, and compares what they compute with what is expected.

Each line of the input is the path of a file and that of a JSON with calls. The answer is a line: `ok`, or what differs.
"""

import json
import sys

import numpy
import onnx
import onnxruntime


def array(tensor):
    numbers = numpy.array(tensor["numbers"], dtype=tensor["kind"])
    return numbers.reshape(tensor["shape"])


def difference(found, expected, tolerance):
    """What is wrong with a result, if anything is."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
    if expected.dtype.kind != "f":
        return None if numpy.array_equal(found, expected) else f"{found}, not {expected}"
    finite = numpy.isfinite(expected)
    if not numpy.array_equal(found[~finite], expected[~finite]):
        return "infinite elsewhere"
    largest = numpy.abs(expected[finite]).max(initial=1e-30)
    error = numpy.abs(found[finite] - expected[finite]).max(initial=0) / largest
    # NaN is no error that is small enough.
    return None if error <= tolerance else f"off by {error} of {largest}"


def check(model, calls):
    """What is wrong with a file."""
    onnx.checker.check_model(model, full_check=True)
    with open(calls) as file:
        content = json.load(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [[of.name for of in side] for side in (session.get_inputs(), session.get_outputs())]
    for side, known, expected in zip(("inputs", "outputs"), names, content["names"]):
        if expected and known != expected:
            yield f"the {side} are {known}"
    for number, call in enumerate(content["calls"]):
        inputs = dict(zip(names[0], map(array, call["inputs"]), strict=True))
        results = session.run(None, inputs)
        for name, found, expected in zip(names[1], results, call["outputs"], strict=True):
            problem = difference(found, array(expected), content["tolerance"])
            if problem:
                yield f"call {number}: {name} is {problem}"


for line in sys.stdin:
    try:
        problems = list(check(*line.rstrip("\n").split("\t")))
    except Exception as error:
        problems = [str(error)]
    print("; ".join(problems).replace("\n", " ") or "ok", flush=True)
