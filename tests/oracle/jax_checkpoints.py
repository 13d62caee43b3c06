#!/usr/bin/env python3
"""Makes tiny JAX checkpoints: parameters with the names of transformers' Flax classes as flax msgpack and .npz, and with
the names of DeepMind's Gemma as .npz.

transformers no longer has Flax classes. By their rules a parameter has the name of the PyTorch class, except that a
matrix of a linear is "kernel" and transposed, a LayerNorm's weight is "scale" and an embedding's is "embedding".

Usage: jax_checkpoints.py MODELS NPZ FLAX   (tests/goldens/sources tests/fuzz/npz_fuzz tests/fuzz/flax_file_fuzz)
MODELS/llama is made by deepspeed_checkpoints.py. The checkpoints are also the corpora of fuzz targets.
Needs numpy, flax, ml_dtypes, msgpack, torch, transformers and safetensors.
"""
import io
import pathlib
import sys
import zipfile

import flax.serialization
import ml_dtypes
import msgpack
import numpy
import torch
from safetensors.numpy import load_file
from transformers import Gemma2Config, Gemma2ForCausalLM, GemmaConfig, GemmaForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, GPTJConfig, GPTJForCausalLM

GEMMA1 = dict(vocab_size=11, hidden_size=8, intermediate_size=10, num_hidden_layers=2, num_attention_heads=4, head_dim=6,
              max_position_embeddings=32, bos_token_id=1, eos_token_id=2)
GEMMA = dict(**GEMMA1, num_key_value_heads=2, sliding_window=8, query_pre_attn_scalar=6)


def random_model(model):
    torch.manual_seed(12)
    model = model.float()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape)
    model.tie_weights()
    return model


def save(model, folder):
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return load_file(folder / "model.safetensors")


def flax_names(weights, layer_norms=()):
    """A nested tree of parameters."""
    tree = {}
    for name, value in weights.items():
        *path, leaf = name.split(".")
        if leaf == "weight" and "embed" in path[-1] or path[-1] in ("wte", "wpe"):
            leaf = "embedding"
        elif leaf == "weight" and value.ndim == 2:
            leaf, value = "kernel", numpy.ascontiguousarray(value.T)
        elif leaf == "weight" and path[-1] in layer_norms:
            leaf = "scale"
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[leaf] = value
    return tree


def flattened(tree, separator="/", prefix=""):
    flat = {}
    for key, value in tree.items():
        flat |= flattened(value, separator, prefix + key + separator) if isinstance(value, dict) else {prefix + key: value}
    return flat


def deepmind_names(weights, config, gating_rows_first):
    """The parameters of DeepMind's Gemma, by the paths of its modules."""
    heads, kv_heads, size, hidden = (config.num_attention_heads, config.num_key_value_heads, config.head_dim,
                                     config.hidden_size)
    by_head = lambda w, n: w.reshape(n, size, hidden).transpose(0, 2, 1)
    params = {"transformer/embedder/input_embedding": weights["model.embed_tokens.weight"],
              "transformer/final_norm/scale": weights["model.norm.weight"]}
    for i in range(config.num_hidden_layers):
        layer = lambda name: weights[f"model.layers.{i}.{name}.weight"]
        gating = numpy.stack([layer("mlp.gate_proj"), layer("mlp.up_proj")])
        q, k, v = (by_head(layer(f"self_attn.{part}_proj"), n) for part, n in [("q", heads), ("k", kv_heads), ("v", kv_heads)])
        # Gemma 1 has no norms after the blocks. Models with a KV head for each query head have q, k and v in one array.
        norms = {"pre_attention_norm/scale": layer("input_layernorm")}
        if f"model.layers.{i}.pre_feedforward_layernorm.weight" in weights:
            norms |= {"post_attention_norm/scale": layer("post_attention_layernorm"),
                      "pre_ffw_norm/scale": layer("pre_feedforward_layernorm"),
                      "post_ffw_norm/scale": layer("post_feedforward_layernorm")}
        else:
            norms["pre_ffw_norm/scale"] = layer("post_attention_layernorm")
        attention = ({"attn/qkv_einsum/w": numpy.stack([q, k, v])} if heads == kv_heads else
                     {"attn/q_einsum/w": q, "attn/kv_einsum/w": numpy.stack([k, v])})
        params |= {f"transformer/layer_{i}/{name}": value for name, value in {
            **norms, **attention,
            "attn/attn_vec_einsum/w": layer("self_attn.o_proj").reshape(hidden, heads, size).transpose(1, 2, 0),
            "mlp/gating_einsum": gating if gating_rows_first else gating.transpose(0, 2, 1),
            "mlp/linear": layer("mlp.down_proj").T}.items()}
        if f"model.layers.{i}.self_attn.q_norm.weight" in weights:
            params[f"transformer/layer_{i}/attn/_query_norm/scale"] = layer("self_attn.q_norm")
            params[f"transformer/layer_{i}/attn/_key_norm/scale"] = layer("self_attn.k_norm")
    return params


def small_flax_files():
    """Small files, most of them just beyond a bound of the reader."""
    pack = lambda value: msgpack.packb(value, default=flax.serialization._msgpack_ext_pack, strict_types=True)
    array = lambda *values: numpy.array(values, numpy.int8)
    inner = lambda *fields: msgpack.ExtType(1, msgpack.packb(fields))
    chunked = lambda shape, *chunks, **more: {"__msgpack_chunked_array__": True, "shape": shape,
                                              "chunks": {str(i): c for i, c in enumerate(chunks)}, **more}
    deep = lambda levels: {} if levels == 1 else {"k": deep(levels - 1)}
    yield "empty", pack({})
    yield "list", pack([])
    yield "leaves", pack({"i": [1, -1, 200, 70000, 2**40, -200, -70000, -2**40, 2**64 - 1], "f": [1.5, None, True],
                          "t": "text", "b": b"bytes", "l": "x" * 40, "m": "x" * 300, "scalar": numpy.float32(2),
                          "many": list(range(20)), "map": {str(i): i for i in range(20)}})
    yield "after", pack({}) + b"\xc0"
    yield "key", b"\x81\x01\xc0"
    yield "cut", pack({"w": array(1, 2)})[:-1]
    yield "items", b"\xdf\xff\xff\xff\xff"
    yield "unknown", b"\x81\xa1w\xc1"
    yield "dtypes", pack({d: numpy.zeros(1, d) for d in ("float16", "float32", "float64", "int8", "uint8", "int16", "int32",
                                                         "int64", "bool", ml_dtypes.bfloat16)
                          if isinstance(d, str)} | {"b": numpy.zeros(2, ml_dtypes.bfloat16)})
    yield "dtype", pack({"w": inner([1], "complex64", b"12345678")})
    yield "complex", pack({"w": 1j})
    yield "type", pack({"w": msgpack.ExtType(9, b"12")})
    yield "short", pack({"w": inner([2], "int8", b"1")})
    yield "long", pack({"w": inner([2], "int8", b"123")})
    yield "negative", pack({"w": inner([-1], "int8", b"")})
    yield "overflow", pack({"w": inner([2**63, 2], "int8", b"")})
    yield "dimensions", pack({"w": inner([1] * 17, "int8", b"1")})
    yield "fields", pack({"w": inner([1], "int8")})
    yield "inner_after", pack({"w": msgpack.ExtType(1, msgpack.packb(([1], "int8", b"1")) + b"\xc0")})
    yield "chunks", pack({"w": chunked({"0": 3}, array(1, 2), array(3))})
    yield "chunk_sizes", pack({"w": chunked({"0": 4}, array(1, 2), array(3))})
    yield "chunk_fields", pack({"w": chunked({"0": 2}, array(1, 2), other=1)})
    yield "chunk_kinds", pack({"w": chunked({"0": 2}, array(1), numpy.zeros(1, numpy.uint8))})
    yield "chunk_numbers", pack({"w": chunked({"1": 2}, array(1, 2))})
    yield "levels", pack(deep(33))
    yield "name", pack({"n" * 200: {"m" * 56: array(1)}})


def small_npz_files():
    """The same for .npz files."""
    def archive(*entries, method=zipfile.ZIP_STORED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as written:
            for name, contents in entries:
                written.writestr(zipfile.ZipInfo(name), contents, method)
        return out.getvalue()

    def npy(array):
        out = io.BytesIO()
        numpy.save(out, array)
        return out.getvalue()

    one, fortran = npy(numpy.arange(3, dtype=numpy.float32)), npy(numpy.asfortranarray(numpy.ones((2, 3), numpy.int8)))
    packed = archive(("a.npy", one), method=zipfile.ZIP_DEFLATED)
    yield "empty", archive()
    yield "stored", archive(("a.npy", one), ("b/c.npy", fortran))
    yield "packed", packed
    yield "other", archive(("a.txt", b"text"))
    yield "long", archive(("a.npy", one + b"x"))
    yield "short", archive(("a.npy", one[:-1]), method=zipfile.ZIP_DEFLATED)
    yield "bzip2", archive(("a.npy", one), method=zipfile.ZIP_BZIP2)
    yield "checksum", archive(("a.npy", one)).replace(one, one[:-1] + b"x")
    yield "damaged", packed.replace(packed[40:44], b"\xff\xff\xff\xff", 1)
    yield "bomb", archive(("a.npy", npy(numpy.zeros(8000, numpy.float32))), method=zipfile.ZIP_DEFLATED)


def main(models, npz, flax_files):
    models, npz, flax_files = pathlib.Path(models), pathlib.Path(npz), pathlib.Path(flax_files)
    for name, contents in small_flax_files():
        (flax_files / name).write_bytes(contents)
    for name, contents in small_npz_files():
        (npz / name).write_bytes(contents)
    tree = flax_names(load_file(models / "llama/model.safetensors"))
    flax.serialization.MAX_CHUNK_SIZE = 256  # so that some arrays have several chunks
    (flax_files / "llama.msgpack").write_bytes(flax.serialization.to_bytes(tree))
    # Some arrays in Fortran order, as numpy saves a transposed one.
    numpy.savez(npz / "llama.npz", **{name: numpy.asfortranarray(value) if "mlp" in name else value
                                      for name, value in flattened({"params": tree}).items()})

    small = dict(vocab_size=11, n_positions=16, n_embd=8, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
    for name, model in (("gpt2", GPT2LMHeadModel(GPT2Config(**small))),
                        ("gptj", GPTJForCausalLM(GPTJConfig(**small, rotary_dim=2)))):
        tree = flax_names(save(random_model(model), models / name), layer_norms=("ln_1", "ln_2", "ln_f"))
        (flax_files / f"{name}.msgpack").write_bytes(flax.serialization.to_bytes(tree))

    for name, model, rows_first in (("gemma_2b", GemmaForCausalLM(GemmaConfig(**GEMMA1, num_key_value_heads=1)), False),
                                    ("gemma_7b", GemmaForCausalLM(GemmaConfig(**GEMMA1, num_key_value_heads=4)), False),
                                    ("gemma2", Gemma2ForCausalLM(Gemma2Config(**GEMMA)), False),
                                    ("gemma3", Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA)), True)):
        model = random_model(model).to(torch.bfloat16)
        model.save_pretrained(models / name)
        (models / name / "generation_config.json").unlink(missing_ok=True)
        weights = {n: w.float().numpy() for n, w in model.state_dict().items()}
        # numpy stores ml_dtypes' bfloat16 as two-byte voids.
        numpy.savez_compressed(npz / f"{name}.npz",
                               **{n: v.astype(ml_dtypes.bfloat16)
                                  for n, v in deepmind_names(weights, model.config, rows_first).items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
