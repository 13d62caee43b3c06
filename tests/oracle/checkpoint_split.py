"""Splits a small random Hugging Face Llama into rank files, independently of the converter, with numpy alone.

Usage: checkpoint_split.py OUTPUT_DIR

Writes OUTPUT_DIR/model/ (config.json, model.safetensors) and OUTPUT_DIR/expected.json, which has for every case the
tensors of every rank as "DTYPE[shape]:sha256 prefix". The rules are those of TensorRT-LLM's Llama converter: q, k and v
are cut separately, KV heads are repeated when there are fewer than ranks, the output head is padded, and the layers of
a stage are numbered from 0.
"""
import hashlib
import json
import pathlib
import struct
import sys

import numpy as np

HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, MLP, VOCAB, LAYERS = 20, 4, 2, 6, 28, 37, 3
CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def source_tensors():
    rng = np.random.default_rng(20240717)
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,),
              "lm_head.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        for name, out, inner in [("self_attn.q_proj", HEADS * HEAD_SIZE, HIDDEN),
                                 ("self_attn.k_proj", KV_HEADS * HEAD_SIZE, HIDDEN),
                                 ("self_attn.v_proj", KV_HEADS * HEAD_SIZE, HIDDEN),
                                 ("self_attn.o_proj", HIDDEN, HEADS * HEAD_SIZE),
                                 ("mlp.gate_proj", MLP, HIDDEN), ("mlp.up_proj", MLP, HIDDEN),
                                 ("mlp.down_proj", HIDDEN, MLP)]:
            shapes[p + name + ".weight"] = (out, inner)
            shapes[p + name + ".bias"] = (out,)
        shapes[p + "input_layernorm.weight"] = (HIDDEN,)
        shapes[p + "post_attention_layernorm.weight"] = (HIDDEN,)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_safetensors(path, tensors):
    header, position = {"__metadata__": {"format": "pt"}}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [position, position + value.nbytes]}
        position += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            f.write(value.tobytes())


def cast(value, dtype):
    if dtype == "float32":
        return value.tobytes()
    if dtype == "float16":
        return value.astype(np.float16).tobytes()
    bits = value.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def cut(value, ranks, rank, axis=0):
    return np.split(value, ranks, axis)[rank]


def cut_heads(value, heads, ranks, rank):
    per_head = value.reshape(heads, HEAD_SIZE, *value.shape[1:])
    if heads < ranks:
        per_head = np.repeat(per_head, ranks // heads, axis=0)
    part = cut(per_head, ranks, rank)
    return part.reshape(-1, *value.shape[1:])


def cut_vocab(value, ranks, rank):
    padded = np.zeros((-(-VOCAB // ranks) * ranks, HIDDEN), np.float32)
    padded[:VOCAB] = value
    return cut(padded, ranks, rank)


def rank_tensors(source, case, tp_rank, pp_rank):
    tp, pp = case["tp_size"], case["pp_size"]
    out = {}
    if pp_rank == 0:
        table = source["model.embed_tokens.weight"]
        if case["use_parallel_embedding"]:
            table = cut_vocab(table, tp, tp_rank) if case["embedding_sharding_dim"] == 0 else cut(table, tp, tp_rank, 1)
        out["transformer.vocab_embedding.weight"] = table
    for local, layer in enumerate(np.array_split(np.arange(LAYERS), pp)[pp_rank]):
        s, d = f"model.layers.{layer}.", f"transformer.layers.{local}."
        out[d + "input_layernorm.weight"] = source[s + "input_layernorm.weight"]
        out[d + "post_layernorm.weight"] = source[s + "post_attention_layernorm.weight"]
        for kind in ("weight", "bias"):
            q, k, v = (source[f"{s}self_attn.{n}_proj.{kind}"] for n in "qkv")
            out[d + "attention.qkv." + kind] = np.concatenate(
                [cut_heads(q, HEADS, tp, tp_rank), cut_heads(k, KV_HEADS, tp, tp_rank),
                 cut_heads(v, KV_HEADS, tp, tp_rank)])
            out[d + "mlp.fc." + kind] = cut(source[f"{s}mlp.gate_proj.{kind}"], tp, tp_rank)
            out[d + "mlp.gate." + kind] = cut(source[f"{s}mlp.up_proj.{kind}"], tp, tp_rank)
        for name, origin in (("attention.dense", "self_attn.o_proj"), ("mlp.proj", "mlp.down_proj")):
            out[d + name + ".weight"] = cut(source[f"{s}{origin}.weight"], tp, tp_rank, 1)
            out[d + name + ".bias"] = source[f"{s}{origin}.bias"]
    if pp_rank == pp - 1:
        out["transformer.ln_f.weight"] = source["model.norm.weight"]
        tied = case["tie_word_embeddings"]
        if not (tied and pp == 1):
            head = source["model.embed_tokens.weight" if tied else "lm_head.weight"]
            out["lm_head.weight"] = cut_vocab(head, tp, tp_rank)
    return out


def describe(value, dtype):
    value = np.ascontiguousarray(value)
    digest = hashlib.sha256(cast(value, dtype)).hexdigest()[:16]
    return f"{CODES[dtype]}{list(value.shape)}:{digest}"


def cases():
    base = dict(dtype="float32", use_parallel_embedding=False, embedding_sharding_dim=0, tie_word_embeddings=False)
    for tp in (1, 2, 4):
        for pp in (1, 2):
            yield dict(base, tp_size=tp, pp_size=pp)
    yield dict(base, tp_size=2, pp_size=2, dtype="float16")
    yield dict(base, tp_size=2, pp_size=2, dtype="bfloat16")
    yield dict(base, tp_size=4, pp_size=1, use_parallel_embedding=True)
    yield dict(base, tp_size=4, pp_size=2, use_parallel_embedding=True, embedding_sharding_dim=1)
    yield dict(base, tp_size=2, pp_size=1, tie_word_embeddings=True)
    yield dict(base, tp_size=2, pp_size=2, tie_word_embeddings=True)


def main():
    root = pathlib.Path(sys.argv[1])
    (root / "model").mkdir(parents=True, exist_ok=True)
    source = source_tensors()
    write_safetensors(root / "model" / "model.safetensors", source)
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=HIDDEN, intermediate_size=MLP,
                  num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
                  head_dim=HEAD_SIZE, vocab_size=VOCAB, max_position_embeddings=128, hidden_act="silu",
                  rms_norm_eps=1e-5, rope_theta=10000.0, attention_bias=True, mlp_bias=True,
                  tie_word_embeddings=False, torch_dtype="float32")
    (root / "model" / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    expected = []
    for case in cases():
        tp, pp = case["tp_size"], case["pp_size"]
        ranks = []
        for rank in range(tp * pp):
            tensors = rank_tensors(source, case, rank % tp, rank // tp)
            ranks.append({name: describe(value, case["dtype"]) for name, value in sorted(tensors.items())})
        expected.append(dict(options=case, ranks=ranks))
    (root / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
