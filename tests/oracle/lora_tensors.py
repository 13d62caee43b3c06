"""What `chorus lora-convert` must write, computed with torch and numpy.

    python3 tests/oracle/lora_tensors.py tests/goldens
        makes goldens/lora_tensors/: small adapters of kinds that no other golden has, and manifest.json with the beginning of
        the SHA-256 of both files of every adapter of the goldens in every storage type.
    python3 tests/oracle/lora_tensors.py --program build/release/bin/chorus [--count 300] [--first 1]
        compares the program with it over random adapters, byte for byte.
"""
import argparse
import hashlib
import io
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy
import safetensors
import safetensors.torch
import torch

TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ATTENTION = {"qkv_proj": 0, "query_key_value": 0, "q_proj": 1, "k_proj": 2, "v_proj": 3, "o_proj": 4, "out_proj": 4,
             "dense": 4}
MLP = {"gate_proj": 5, "c_fc": 5, "fc1": 5, "down_proj": 6, "c_proj": 6, "fc2": 6, "up_proj": 7, "gate_up_proj": 18,
       "gate": 16, "shared_expert_gate": 17}
EXPERT = {"w1": 13, "gate_proj": 13, "w2": 14, "down_proj": 14, "w3": 15, "up_proj": 15}
KEY = re.compile(r"base_model\.model\.(?P<module>(?:.*\.)?(?:layers|h)\.(?P<layer>\d+)\.(?:(?P<parent>[a-z_]+)\.)?"
                 r"(?:experts\.(?P<expert>\d+)\.)?(?P<leaf>[a-z0-9_]+))\."
                 r"(?:lora_(?P<part>A|B|magnitude_vector)|weight_(?P<decomposed>m_wdecomp))(?:\.default)?(?:\.weight)?")


def module_id(parent, expert, leaf):
    if expert is not None:
        return EXPERT[leaf]
    if parent in ("self_attn", "self_attention", "attn"):
        return ATTENTION[leaf]
    if parent in ("encoder_attn", "cross_attn"):
        return 8 + ATTENTION[leaf]
    return MLP[leaf]


def read_tensors(directory):
    path = directory / "adapter_model.safetensors"
    if not path.exists():
        return torch.load(directory / "adapter_model.bin", weights_only=True)
    with safetensors.safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in sorted(file.keys())}


def of_module(patterns, module, otherwise):
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return otherwise


def scale_of(config, module):
    rank = of_module(config.get("rank_pattern") or {}, module, config["r"])
    alpha = of_module(config.get("alpha_pattern") or {}, module, config["lora_alpha"])
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def converted(directory, storage):
    """Returns (config [1, rows, 4], weights [1, rows, longest]) as numpy arrays."""
    config = json.loads((directory / "adapter_config.json").read_text())
    layers = {}
    for key, tensor in read_tensors(directory).items():
        m = KEY.fullmatch(key)
        place = module_id(m["parent"], m["expert"], m["leaf"])
        experts = layers.setdefault(int(m["layer"]), {}).setdefault(place, {})
        expert = experts.setdefault(int(m["expert"] or 0), {"module": m["module"]})
        expert[m["part"] if m["part"] in ("A", "B") else "magnitude"] = tensor.to(torch.float32)
    rows, keys = [], []
    for layer, modules in layers.items():
        for place, by_expert in modules.items():
            experts = [by_expert[i] for i in range(len(by_expert))]
            a = torch.stack([e["A"] for e in experts])
            b = torch.stack([e["B"] * scale_of(config, e["module"]) for e in experts])
            row = [a.flatten(), b.flatten()]
            if "magnitude" in experts[0]:
                row.append(experts[0]["magnitude"].flatten())
            rows.append(torch.cat(row).to(TYPES[storage]))
            keys.append([place, layer, a.shape[1], int("magnitude" in experts[0])])
    longest = max(len(row) for row in rows)
    weights = torch.stack([torch.nn.functional.pad(row, (0, longest - len(row))) for row in rows])[None]
    weights = weights.view(torch.int16).numpy().view("V2") if storage == "bfloat16" else weights.numpy()
    return numpy.array([keys], numpy.int32), weights


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def digest(array):
    return hashlib.sha256(npy(array)).hexdigest()[:16]


def make_adapter(directory, modules, rng, *, config=None, dtype=torch.float32, magnitude=None, binary=False):
    """modules: {name in the base model: (rank, in, out)}."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    tensors = {}
    for name, (rank, size_in, size_out) in modules.items():
        key = "base_model.model." + name
        tensors[key + ".lora_A.weight"] = torch.randn(rank, size_in, generator=generator).to(dtype)
        tensors[key + ".lora_B.weight"] = torch.randn(size_out, rank, generator=generator).to(dtype)
        if magnitude:
            vector = torch.rand(size_out, generator=generator) + 0.5
            tensors[key + magnitude] = vector[:, None] if "wdecomp" in magnitude else vector
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": None,
              "use_dora": bool(magnitude)} | (config or {})
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    if binary:
        torch.save(tensors, directory / "adapter_model.bin")
    else:
        safetensors.torch.save_file(tensors, directory / "adapter_model.safetensors", {"format": "pt"})


def small_adapters(directory):
    rng = random.Random(7)
    each = lambda names, layers, shape: {f"model.layers.{i}.{n}": shape for i in layers for n in names}
    make_adapter(directory / "fused", each(["self_attn.qkv_proj", "mlp.gate_up_proj"], range(2), (4, 6, 10)), rng,
                 config={"use_rslora": True})
    experts = [f"block_sparse_moe.experts.{e}.{w}" for e in range(2) for w in ("w1", "w3")]
    down = [f"block_sparse_moe.experts.{e}.w2" for e in range(2)]
    make_adapter(directory / "mixtral", each(experts, [10], (4, 6, 5)) | each(down, [2, 10], (4, 5, 6)) |
                 each(["block_sparse_moe.gate"], [2], (4, 6, 2)), rng, config={"lora_alpha": 3}, binary=True)
    experts = [f"mlp.experts.{e}.{w}" for e in range(2) for w in ("gate_proj", "up_proj")]
    make_adapter(directory / "qwen_moe", each(experts, [0], (4, 6, 5)) | each(["mlp.shared_expert_gate"], [0], (4, 6, 1)) |
                 each(["mlp.gate"], [0], (4, 6, 2)), rng, dtype=torch.bfloat16)
    cross = {f"model.decoder.layers.{i}.{n}": (4, 6, 6) for i in (0, 2, 10)
             for n in ("encoder_attn.q_proj", "encoder_attn.out_proj", "self_attn.v_proj", "fc1")}
    make_adapter(directory / "cross", cross, rng, config={"alpha_pattern": {"layers.1.*fc1": 5}}, dtype=torch.float16)
    make_adapter(directory / "decomposed", each(["self_attn.q_proj", "mlp.down_proj"], [0, 1], (4, 6, 5)), rng,
                 magnitude=".weight_m_wdecomp.weight",
                 config={"peft_type": "DORA", "dora_simple": True, "enable_lora": None, "merge_weights": False,
                         "Wdecompose_target_modules": None, "use_dora": False})


def write_goldens(goldens):
    small_adapters(goldens / "lora_tensors")
    manifest = {}
    for path in sorted(goldens.glob("**/adapter_config.json")):
        name = str(path.parent.relative_to(goldens))
        try:
            files = {storage: converted(path.parent, storage) for storage in TYPES}
        except (TypeError, KeyError):
            print(f"{name}: not of linears alone", file=sys.stderr)
            continue
        manifest[name] = {"rows": files["float32"][1].shape[1], "longest": files["float32"][1].shape[2],
                          "config": digest(files["float32"][0])}
        manifest[name] |= {storage: digest(w) for storage, (_, w) in files.items()}
    (goldens / "lora_tensors/manifest.json").write_text(json.dumps(manifest, indent=0) + "\n")
    print(len(manifest), "adapters")


def random_adapter(directory, rng):
    sizes = [rng.randrange(1, 40) for _ in range(3)]
    rank, q, kv, hidden, mlp = rng.randrange(1, 12), rng.randrange(1, 40), *sizes
    shapes = {"self_attn.q_proj": (hidden, q), "self_attn.k_proj": (hidden, kv), "self_attn.v_proj": (hidden, kv),
              "self_attn.o_proj": (q, hidden), "mlp.gate_proj": (hidden, mlp), "mlp.up_proj": (hidden, mlp),
              "mlp.down_proj": (mlp, hidden), "self_attn.qkv_proj": (hidden, q + 2 * kv),
              "mlp.gate_up_proj": (hidden, 2 * mlp)}
    chosen = rng.sample(sorted(shapes), rng.randrange(1, len(shapes) + 1))
    ranks = {name: rng.randrange(1, 12) for name in chosen if rng.random() < 0.3}
    modules = {f"model.layers.{layer}.{name}": (ranks.get(name, rank), *shapes[name])
               for layer in rng.sample(range(40), rng.randrange(1, 12)) for name in chosen if rng.random() < 0.9}
    if not modules:
        return random_adapter(directory, rng)
    config = {"r": rank, "lora_alpha": rng.choice([rank, 2 * rank, 3, 7.5, rng.uniform(0.1, 50)]),
              "use_rslora": rng.random() < 0.4, "rank_pattern": ranks,
              "alpha_pattern": {name: rng.uniform(1, 9) for name in chosen if rng.random() < 0.2}}
    magnitude = rng.choice([None, ".lora_magnitude_vector", ".lora_magnitude_vector.default.weight"])
    make_adapter(directory, modules, rng, config=config, dtype=rng.choice([*TYPES.values(), torch.float64]),
                 magnitude=magnitude, binary=rng.random() < 0.3)


def compare(program, first, count):
    for seed in range(first, first + count):
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as scratch:
            directory, out = pathlib.Path(scratch, "adapter"), pathlib.Path(scratch, "out")
            random_adapter(directory, rng)
            for storage in TYPES:
                run = subprocess.run([program, "lora-convert", "-i", directory, "-o", out, "--storage-type", storage],
                                     capture_output=True, text=True)
                assert run.returncode == 0, (seed, storage, run.stderr)
                config, weights = converted(directory, storage)
                assert (out / "model.lora_config.npy").read_bytes() == npy(config), (seed, storage, "config")
                assert (out / "model.lora_weights.npy").read_bytes() == npy(weights), (seed, storage, "weights")
    print(f"{count} adapters from seed {first}: equal in every storage type")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goldens", nargs="?", type=pathlib.Path)
    parser.add_argument("--program")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.program:
        compare(arguments.program, arguments.first, arguments.count)
    else:
        write_goldens(arguments.goldens)
