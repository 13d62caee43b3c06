"""Weights that follow from a seed, so that a golden stores a description of them instead of the values.

weights.json of a golden lists the tensors of its files; tests/hashed_weights.cc makes the files from it. Element i of a
tensor is

    center + k * scale,   k = (sum of the 8 bytes of splitmix64(fnv1a64("SEED/FILE/TENSOR") + i)) - 1020

computed in float64, rounded to float32 and then to the file's dtype. k is an integer with deviation 209.
"""

import json
import os
import re

import numpy
import safetensors.torch
import torch

DEVIATION = 209.0
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def start_of(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def values(text, shape, center, scale):
    """float32 values of one tensor; text identifies it."""
    count = int(numpy.prod(shape, dtype=numpy.int64))
    with numpy.errstate(over="ignore"):
        x = numpy.uint64(start_of(text)) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x = x ^ (x >> numpy.uint64(31))
    k = x.view(numpy.uint8).reshape(count, 8).sum(1, dtype=numpy.int64) - 1020
    return torch.from_numpy((center + k * scale).astype(numpy.float32).reshape(shape))


def rewrite(root, name, seed, dtype, rule):
    """Replaces the values in the safetensors file root/name, and returns its description for weights.json.

    rule(tensor name, shape) is (center, deviation) of a tensor. dtype: "F32", "BF16" or "F16".
    """
    stored = safetensors.torch.load_file(root / name)
    prefix = os.path.commonprefix(list(stored)).rpartition(".")[0]
    prefix = prefix + "." if prefix else ""
    tensors, rows, names = {}, {}, {}
    for tensor, old in sorted(stored.items()):
        shape = list(old.shape)
        center, deviation = rule(tensor, shape)
        scale = float(f"{deviation / DEVIATION:.4g}")
        tensors[tensor] = values(f"{seed}/{name}/{tensor}", shape, center, scale).to(DTYPES[dtype]).contiguous()
        pattern = re.sub(r"\.\d+\.", ".{layer}.", tensor, count=1).removeprefix(prefix)
        own = tensor.removeprefix(prefix)
        rows[own] = [shape, scale, center] if center else [shape, scale]
        names.setdefault(pattern, []).append(own)
    safetensors.torch.save_file(tensors, root / name, metadata={"format": "pt"})
    layers = len({match[1] for match in map(re.compile(r"\.(\d+)\.").search, tensors) if match})
    # A tensor that only some layers have, or that differs among them, is listed by its names.
    listed = []
    for pattern, owns in names.items():
        equal = len(owns) == layers and all(rows[own] == rows[owns[0]] for own in owns)
        listed += [[pattern, *rows[owns[0]]]] if equal else [[own, *rows[own]] for own in owns]
    return dict(file=name, seed=seed, dtype=dtype, prefix=prefix, layers=layers, tensors=listed)


def write_description(root, files):
    """Writes weights.json. A tensor is [name, shape, scale] or, if it has one, [name, shape, scale, center]."""
    parts = []
    for file in files:
        rows = ",\n   ".join(json.dumps(row) for row in file["tensors"])
        head = json.dumps({key: value for key, value in file.items() if key != "tensors"})
        parts.append(f'{head[:-1]}, "tensors": [\n   {rows}]}}')
    (root / "weights.json").write_text('{"files": [\n  ' + ",\n  ".join(parts) + "]}\n")
