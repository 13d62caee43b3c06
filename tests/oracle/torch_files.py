#!/usr/bin/env python3
"""Makes small PyTorch files of every kind that the program reads, and a list of the tensors that torch reads from them.

Usage: torch_files.py OUT_DIR EXPECTED_JSON   (tests/fuzz/torch_file_fuzz tests/goldens/torch_files.json)
"""
import hashlib
import json
import pathlib
import sys
from collections import OrderedDict

import torch
from torch.utils.serialization import config

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]


def describe(tensor):
    dtype = str(tensor.dtype).removeprefix("torch.").replace("e4m3fn", "e4m3")
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]
    return f"{dtype}{list(tensor.shape)}:{digest}"


def find_tensors(root):
    """Finds the tensors by the rule of src/formats/torch_file.h."""
    for candidate in [root] + [root.get(k) for k in ("state_dict", "model_state_dict", "module")]:
        if isinstance(candidate, dict):
            tensors = {k: v for k, v in candidate.items() if isinstance(k, str) and isinstance(v, torch.Tensor)}
            if tensors:
                return tensors
    return {}


def make_cases():
    torch.manual_seed(5)
    every = OrderedDict()
    for dtype in FLOATS:
        every[f"t.{str(dtype)[6:]}"] = torch.randn(3, 2).to(dtype)
    for dtype in INTEGERS:
        every[f"t.{str(dtype)[6:]}"] = torch.randint(0, 2, (5,)).to(dtype)
    every["scalar"] = torch.tensor(2.5)
    every["empty"] = torch.empty(0, 3)
    every["parameter"] = torch.nn.Parameter(torch.randn(2))

    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    views = {"whole": base, "transposed": base.t(), "columns": base[:, 1:4], "every_other": base[::2],
             "tail": base[2:], "tied": base, "one": base[1, 2], "ones": base[:, :1], "cube": base.reshape(2, 2, 6).permute(2, 0, 1)}

    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    adapter = {f"base_model.model.model.layers.{i}.self_attn.q_proj.lora_{p}.weight": torch.randn(*shape)
               for i in range(2) for p, shape in (("A", (2, 4)), ("B", (4, 2)))}
    trainer = {"epoch": 3, "loss": 0.25, "name": "r\u00e9sum\u00e9", "done": True, "none": None, "big": 2 ** 40,
               "negative": -7, "huge": 2 ** 70, "bytes": b"\x00\xff\x7f", "tags": {"a"}, "shape": torch.Size([2, 3]),
               "dtype": torch.bfloat16, "list": [1, (2,), (3, 4), (5, 6, 7), (1, 2, 3, 4), []], 7: "seven",
               "state_dict": net.state_dict()}
    return {
        "all_dtypes": (every, {}),
        "views": (views, {}),
        "module": ({"module": net.state_dict(), "step": 4}, {}),
        "trainer": (trainer, {}),
        "adapter": (adapter, {}),
        "protocol4": ({**adapter, "extra": [1.5, "x"]}, {"pickle_protocol": 4}),
        "protocol5": (views, {"pickle_protocol": 5}),
        # torch writes float8 in this format but does not read it.
        "legacy_all_dtypes": ({k: v for k, v in every.items() if "float8" not in k}, {"_use_new_zipfile_serialization": False}),
        "legacy_views": (views, {"_use_new_zipfile_serialization": False}),
        "legacy_trainer": (trainer, {"_use_new_zipfile_serialization": False}),
        "no_tensors": ({"only": "words"}, {}),
    }


def main(out, expected_path):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    expected = {}
    config.save.storage_alignment = 16  # smaller files; "aligned" below has the default
    for name, (value, options) in make_cases().items():
        torch.save(value, out / f"{name}.bin", **options)
        loaded = torch.load(out / f"{name}.bin", weights_only=False)
        expected[name] = {key: describe(t) for key, t in find_tensors(loaded).items()}
    config.save.storage_alignment = 64
    torch.save({"w": torch.ones(2)}, out / "aligned.bin")
    expected["aligned"] = {"w": describe(torch.ones(2))}
    pathlib.Path(expected_path).write_text(json.dumps({"torch": torch.__version__, "files": expected}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
