#!/usr/bin/env python3
"""Measures how long a training loop waits for the first answer of an adapter that it publishes.

A made-up Llama with random weights is served, and adapters of about 25 MB (bfloat16, rank 64, all linears of 10 layers) are
uploaded under one name, each in place of the one before. Prints the times from the first byte of the upload to its answer, from
the request to the first token, and their sum. The machine should be idle. Standard library only.

Usage: bench/publish.py --chorus build/release/bin/chorus [--uploads 20] [--keep FOLDER]
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import statistics
import struct
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
from server_process import ServerProcess  # noqa: E402

HIDDEN, INNER, LAYERS, HEADS, RANK = 1024, 2816, 10, 16, 64
LINEARS = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN, HIDDEN),
           "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
           "mlp.down_proj": (HIDDEN, INNER)}
SIGNS = bytes(0x3C if value < 128 else 0xBC for value in range(256))


def random_bfloat16(count):
    """Random values of about 0.01."""
    values = bytearray(2 * count)
    values[0::2] = os.urandom(count)
    values[1::2] = os.urandom(count).translate(SIGNS)
    return bytes(values)


def safetensors(shapes, metadata=None):
    header, offset = ({"__metadata__": metadata} if metadata else {}), 0
    values = []
    for name, shape in shapes.items():
        count = 1
        for extent in shape:
            count *= extent
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * count]}
        offset += 2 * count
        values.append(random_bfloat16(count))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(values)


def make_base(folder):
    demo = ROOT / "examples/demo/base"
    shutil.copytree(demo, folder)
    for weights in folder.glob("*.safetensors*"):
        weights.unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
               "num_key_value_heads": HEADS, "head_dim": HIDDEN // HEADS, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], HIDDEN], "model.norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}{name}.weight": list(shape) for name, shape in LINEARS.items()}
        shapes |= {f"{prefix}{name}.weight": [HIDDEN] for name in ("input_layernorm", "post_attention_layernorm")}
    (folder / "model.safetensors").write_bytes(safetensors(shapes))


def make_adapter():
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none", "task_type": "CAUSAL_LM",
              "target_modules": [name.split(".")[1] for name in LINEARS]}
    shapes = {}
    for layer in range(LAYERS):
        for name, (rows, columns) in LINEARS.items():
            prefix = f"base_model.model.model.layers.{layer}.{name}."
            shapes |= {prefix + "lora_A.weight": [RANK, columns], prefix + "lora_B.weight": [rows, RANK]}
    return safetensors(shapes, {"adapter_config.json": json.dumps(config)})


def publish(connection, body):
    connection.request("PUT", "/v1/admin/adapters/student", body, {"content-type": "application/octet-stream"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise SystemExit(f"status {response.status}: {answer.decode()}")


def first_token(connection):
    body = {"model": "student", "prompt": "two red dogs", "max_tokens": 1, "temperature": 0, "stream": True,
            "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"status {response.status}: {response.read().decode()}")
    line = response.readline()
    now = time.monotonic()
    response.read()
    if not line.startswith(b"data: "):
        raise SystemExit(f"no event: {line}")
    return now


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chorus", type=pathlib.Path, required=True)
    parser.add_argument("--uploads", type=int, default=20)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the model and its engine, which later runs use again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chorus-publish-") as scratch:
        folder = arguments.keep or pathlib.Path(scratch)
        if not (folder / "base").exists():
            make_base(folder / "base")
        with ServerProcess(arguments.chorus, [
                folder / "base", "--dtype", "bfloat16", "--cache_dir", folder / "cache", "--enable_admin", "--lora_upload_dir",
                folder / "uploads", "--max_lora_rank", RANK, "--log_level", "warning"]) as server:
            host = server.url.removeprefix("http://")
            connection = http.client.HTTPConnection(host)
            times = []
            for number in range(arguments.uploads + 2):
                body = make_adapter()
                begin = time.monotonic()
                publish(connection, body)
                published = time.monotonic()
                answered = first_token(connection)
                if number >= 2:  # the first ones warm up
                    times.append((published - begin, answered - published, answered - begin))
    print(f"{len(body) / 1e6:.1f} MB, {len(times)} uploads, ms: median (least to most)")
    for name, column in zip(("upload and its answer", "request to first token", "upload to first token"), zip(*times)):
        values = [1000 * value for value in column]
        print(f"  {name:24}{statistics.median(values):7.1f} ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
