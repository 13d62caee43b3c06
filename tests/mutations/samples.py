"""Valid files of every kind, as their own libraries write them, and pickles that would run a command."""
import io
import json
import os
import pathlib
import pickle
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make_tensors():
    import torch
    torch.manual_seed(3)
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {"a.weight": torch.randn(3, 5), "a.bias": torch.randn(3).to(torch.bfloat16), "half": base[0].half().clone(),
            "ids": torch.arange(4), "mask": torch.tensor([True, False]), "scalar": torch.tensor(1.5),
            "empty": torch.empty(0, 2)}, base


def torch_files():
    import torch
    from torch.utils.serialization import config
    config.save.storage_alignment = 16
    tensors, base = make_tensors()
    views = {"whole": base, "turned": base.t(), "columns": base[:, 1:3], "tied": base, "step": base[::2]}
    net = torch.nn.Linear(3, 2).state_dict()
    values = {"plain": tensors, "views": views, "nested": {"epoch": 3, "loss": 0.5, "name": "x", "list": [1, (2, None)],
                                                           "state_dict": net}}
    for name, value in values.items():
        for legacy in (False, True):
            out = io.BytesIO()
            torch.save(value, out, _use_new_zipfile_serialization=not legacy)
            yield f"{'legacy' if legacy else 'zip'}-{name}", out.getvalue()


def safetensors_files():
    import safetensors.torch
    tensors, _ = make_tensors()
    yield "several", safetensors.torch.save(tensors, {"format": "pt"})
    yield "one", safetensors.torch.save({"w": tensors["a.weight"]})


def npy_files():
    import numpy
    for name, array in {"matrix": numpy.arange(12, dtype=numpy.int32).reshape(3, 4), "scalar": numpy.float32(2.5),
                        "cube": numpy.ones((2, 1, 3), numpy.float16), "bool": numpy.array([True, False])}.items():
        out = io.BytesIO()
        numpy.save(out, array)
        yield name, out.getvalue()


def files_of(folder, *names):
    for name in names:
        path = ROOT / folder / name
        yield path.stem, path.read_bytes()


ENGINE_FILES = [p.name for p in (ROOT / "tests/fuzz/engine_file_fuzz").glob("*") if p.stem in ("linear", "one", "three")]


def adapter_configs():
    for path in sorted((ROOT / "tests/goldens/peft").glob("*/adapter_config.json")):
        yield path.parent.name, path.read_bytes()


def configs(chorus, work):
    """A checkpoint's and an engine's config.json, made by the program."""
    model = ROOT / "tests/goldens/checkpoint/model"
    for command in (["convert", "--model_dir", model, "--output_dir", work / "ckpt"],
                    ["build", "--checkpoint_dir", work / "ckpt", "--output_dir", work / "engine"]):
        subprocess.run([chorus, *command], check=True, capture_output=True)
    engine = json.loads((work / "engine/config.json").read_text())
    return {"checkpoint_config": [("model", (work / "ckpt/config.json").read_bytes())],
            "build_config": [("engine", json.dumps(engine["build_config"]).encode())]}


def samples(kind, own_configs):
    """Of one kind: its reader and a list of (name, bytes)."""
    kinds = {"safetensors": ("safetensors", safetensors_files), "npy": ("npy", npy_files),
             "torch_zip": ("torch", lambda: (f for f in torch_files() if f[0].startswith("zip"))),
             "torch_legacy": ("torch", lambda: (f for f in torch_files() if f[0].startswith("legacy"))),
             "npz": ("npz", lambda: files_of("tests/fuzz/npz_fuzz", "llama.npz", "gemma2.npz", "stored", "packed")),
             "flax": ("flax", lambda: files_of("tests/fuzz/flax_file_fuzz", "llama.msgpack", "gpt2.msgpack", "leaves",
                                               "dtypes", "chunks")),
             "tokenizer": ("tokenizer", lambda: files_of(
                 "tests/fuzz/tokenizer_fuzz", *(f"{n}.json" for n in (
                     "gpt2", "llama2", "llama3", "lowercase", "metaspace", "qwen2", "roberta")))),
             "adapter_config": ("adapter_config", adapter_configs),
             "engine_file": ("engine_file", lambda: files_of("tests/fuzz/engine_file_fuzz", *ENGINE_FILES)),
             **{name: (name, lambda found=found: found) for name, found in own_configs.items()}}
    reader, make = kinds[kind]
    return reader, list(make())


KINDS = ["safetensors", "torch_zip", "torch_legacy", "npy", "npz", "flax", "tokenizer", "adapter_config", "checkpoint_config",
         "build_config", "engine_file"]


class Command:
    """Pickles as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile_files(marker):
    """Files that would make `marker` if their pickles were executed."""
    import torch
    touch = f"touch {marker}"
    weight = torch.ones(2)
    calls = [Command(os.system, touch), Command(eval, f"__import__('os').system({touch!r})"),
             Command(exec, f"import os; os.system({touch!r})"), Command(subprocess.Popen, touch.split()),
             Command(subprocess.getoutput, touch), Command(getattr, "text", "upper")]
    for i, call in enumerate(calls):
        for place, value in {"root": call, "nested": {"state_dict": {"w": weight, "x": call}}, "list": {"w": weight, "l": [call]},
                             "tuple": {"w": weight, "t": (1, (call,))}, "first": {"x": call, "w": weight}}.items():
            for protocol in (2, 3, 4, 5):
                for legacy in (False, True):
                    out = io.BytesIO()
                    torch.save(value, out, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
                    yield f"{i}-{place}-{protocol}-{'legacy' if legacy else 'zip'}", out.getvalue()
    out = io.BytesIO()
    torch.save({"w": weight}, out, _use_new_zipfile_serialization=False)
    whole = out.getvalue()
    for protocol in range(6):  # before everything that torch wrote
        yield f"header-{protocol}", pickle.dumps(Command(os.system, touch), protocol) + whole
    for name, body in {"INST": b"(S'%s'\nios\nsystem\n.", "OBJ": b"\x80\x02(cos\nsystem\nX%s%so.",
                       "NEWOBJ": b"\x80\x02cos\nsystem\nX%s%s\x85\x81."}.items():
        text = touch.encode()
        size = len(text).to_bytes(4, "little")
        yield name, body % (text,) if name == "INST" else body % (size, text)
