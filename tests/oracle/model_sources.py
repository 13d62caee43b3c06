#!/usr/bin/env python3
"""Makes tests/goldens/model_sources: one small model as several kinds of sources keep it, written by plain code that follows the
documents of each format and shares nothing with the program.

  model_sources.py tests/goldens/model_sources

Every entry is one source: a directory or a file. The test converts each of them and compares it with `huggingface`.
"""

import collections
import io
import json
import pathlib
import sys
import tarfile

import flax.serialization
import ml_dtypes
import torch
from safetensors.torch import save_file
from torch.utils.serialization import config as serialization

from jax_checkpoints import flax_names

SEED = 20261125
HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, MLP, LAYERS, VOCAB, POSITIONS = 16, 4, 1, 4, 24, 3, 19, 64
NORM_EPSILON, ROPE_BASE = 1e-5, 10000.0
TP, PP = 2, 2
ZERO_RANKS = 3


def weights():
    """The model's tensors by Hugging Face's names, in bfloat16."""
    generator = torch.Generator().manual_seed(SEED)

    def random(*shape, center=0.0):
        return (center + 0.25 * torch.randn(*shape, generator=generator)).to(torch.bfloat16)

    tensors = {"model.embed_tokens.weight": random(VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        tensors[name + "input_layernorm.weight"] = random(HIDDEN, center=1.0)
        tensors[name + "self_attn.q_proj.weight"] = random(HEADS * HEAD_SIZE, HIDDEN)
        tensors[name + "self_attn.k_proj.weight"] = random(KV_HEADS * HEAD_SIZE, HIDDEN)
        tensors[name + "self_attn.v_proj.weight"] = random(KV_HEADS * HEAD_SIZE, HIDDEN)
        tensors[name + "self_attn.o_proj.weight"] = random(HIDDEN, HEADS * HEAD_SIZE)
        tensors[name + "post_attention_layernorm.weight"] = random(HIDDEN, center=1.0)
        tensors[name + "mlp.gate_proj.weight"] = random(MLP, HIDDEN)
        tensors[name + "mlp.up_proj.weight"] = random(MLP, HIDDEN)
        tensors[name + "mlp.down_proj.weight"] = random(HIDDEN, MLP)
    tensors["model.norm.weight"] = random(HIDDEN, center=1.0)
    tensors["lm_head.weight"] = random(VOCAB, HIDDEN)
    return tensors


def huggingface_config():
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": MLP,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE, "vocab_size": VOCAB, "max_position_embeddings": POSITIONS, "hidden_act": "silu",
        "rms_norm_eps": NORM_EPSILON, "rope_theta": ROPE_BASE, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_huggingface(directory, tensors):
    write_json(directory / "config.json", huggingface_config())
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def write_huggingface_bin(directory, tensors):
    """PyTorch files with an index, which cuts the model in the middle of a layer."""
    write_json(directory / "config.json", huggingface_config())
    names = list(tensors)
    shards = {"pytorch_model-00001-of-00002.bin": names[:14], "pytorch_model-00002-of-00002.bin": names[14:]}
    for file, part in shards.items():
        torch.save({name: tensors[name] for name in part}, directory / file)
    write_json(directory / "pytorch_model.bin.index.json", {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, part in shards.items() for name in part}})


def split_heads(tensor, tp_rank):
    """Key or value heads of a rank; with fewer heads than ranks, neighbouring ranks repeat a head."""
    heads = tensor.view(KV_HEADS, HEAD_SIZE, -1).repeat_interleave(max(1, TP // KV_HEADS), dim=0)
    return heads.chunk(TP)[tp_rank].reshape(-1, tensor.shape[1])


def padded(table):
    rows = -len(table) % TP
    return torch.cat([table, torch.zeros(rows, table.shape[1], dtype=table.dtype)])


def write_checkpoint(directory, tensors):
    """TensorRT-LLM's ranks, with the keys that its converter for Llama writes."""
    write_json(directory / "config.json", {
        "architecture": "LlamaForCausalLM", "dtype": "bfloat16", "logits_dtype": "float32", "vocab_size": VOCAB,
        "max_position_embeddings": POSITIONS, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_size": HEAD_SIZE, "qk_layernorm": False,
        "hidden_act": "silu", "intermediate_size": MLP, "norm_epsilon": NORM_EPSILON,
        "position_embedding_type": "rope_gpt_neox", "use_parallel_embedding": True, "embedding_sharding_dim": 0,
        "share_embedding_table": False,
        "mapping": {"world_size": TP * PP, "tp_size": TP, "pp_size": PP, "gpus_per_node": 8, "cp_size": 1,
                    "moe_tp_size": TP, "moe_ep_size": 1},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None, "group_size": 128, "smoothquant_val": 0.5,
                         "clamp_val": None, "has_zero_point": False, "pre_quant_scale": False,
                         "exclude_modules": None},
        "kv_dtype": "bfloat16", "rotary_scaling": None, "rotary_base": ROPE_BASE, "mlp_bias": False, "attn_bias": False,
        "residual_mlp": False, "disable_weight_only_quant_plugin": False, "remove_duplicated_kv_heads": False,
        "moe": {"num_experts": 0, "top_k": 0, "normalization_mode": 1, "sparse_mixer_epsilon": 0.01, "tp_mode": 0}})
    stages = torch.tensor_split(torch.arange(LAYERS), PP)
    for rank in range(TP * PP):
        tp_rank, stage = rank % TP, rank // TP
        out = {}
        for local, layer in enumerate(stages[stage].tolist()):
            source, target = f"model.layers.{layer}.", f"transformer.layers.{local}."
            q = tensors[source + "self_attn.q_proj.weight"].chunk(TP)[tp_rank]
            k, v = (split_heads(tensors[f"{source}self_attn.{part}_proj.weight"], tp_rank) for part in "kv")
            out[target + "attention.qkv.weight"] = torch.cat([q, k, v])
            out[target + "attention.dense.weight"] = tensors[source + "self_attn.o_proj.weight"].chunk(TP, 1)[tp_rank]
            out[target + "mlp.fc.weight"] = tensors[source + "mlp.gate_proj.weight"].chunk(TP)[tp_rank]
            out[target + "mlp.gate.weight"] = tensors[source + "mlp.up_proj.weight"].chunk(TP)[tp_rank]
            out[target + "mlp.proj.weight"] = tensors[source + "mlp.down_proj.weight"].chunk(TP, 1)[tp_rank]
            out[target + "input_layernorm.weight"] = tensors[source + "input_layernorm.weight"]
            out[target + "post_layernorm.weight"] = tensors[source + "post_attention_layernorm.weight"]
        if stage == 0:
            out["transformer.vocab_embedding.weight"] = padded(tensors["model.embed_tokens.weight"]).chunk(TP)[tp_rank]
        if stage == PP - 1:
            out["transformer.ln_f.weight"] = tensors["model.norm.weight"]
            out["lm_head.weight"] = padded(tensors["lm_head.weight"]).chunk(TP)[tp_rank]
        save_file({name: tensor.contiguous().clone() for name, tensor in out.items()},
                  directory / f"rank{rank}.safetensors")


def write_nemo(path, tensors):
    """An archive of Megatron core's names: rows of q, k and v by KV group, both halves of the MLP in one tensor."""
    config = {"num_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_query_groups": KV_HEADS,
              "kv_channels": HEAD_SIZE, "ffn_hidden_size": MLP, "max_position_embeddings": POSITIONS,
              "encoder_seq_length": POSITIONS, "normalization": "rmsnorm", "layernorm_epsilon": NORM_EPSILON,
              "activation": "fast-swiglu", "bias": False, "position_embedding_type": "rope", "rotary_percentage": 1.0,
              "rotary_base": ROPE_BASE, "share_embeddings_and_output_weights": False, "override_vocab_size": VOCAB,
              "precision": "bf16", "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1}
    out = {"model.embedding.word_embeddings.weight": padded(tensors["model.embed_tokens.weight"]),
           "model.output_layer.weight": padded(tensors["lm_head.weight"]),
           "model.decoder.final_layernorm.weight": tensors["model.norm.weight"]}
    for layer in range(LAYERS):
        source, target = f"model.layers.{layer}.", f"model.decoder.layers.{layer}."
        q, k, v = (tensors[f"{source}self_attn.{part}_proj.weight"].view(KV_HEADS, -1, HIDDEN) for part in "qkv")
        out[target + "self_attention.linear_qkv.weight"] = torch.cat([q, k, v], 1).reshape(-1, HIDDEN)
        out[target + "self_attention.linear_qkv.layer_norm_weight"] = tensors[source + "input_layernorm.weight"]
        out[target + "self_attention.linear_proj.weight"] = tensors[source + "self_attn.o_proj.weight"]
        out[target + "mlp.linear_fc1.weight"] = torch.cat([tensors[source + "mlp.gate_proj.weight"],
                                                           tensors[source + "mlp.up_proj.weight"]])
        out[target + "mlp.linear_fc1.layer_norm_weight"] = tensors[source + "post_attention_layernorm.weight"]
        out[target + "mlp.linear_fc2.weight"] = tensors[source + "mlp.down_proj.weight"]
    weights_file = io.BytesIO()
    torch.save(out, weights_file)
    members = {"model_config.yaml": "".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items()).encode(),
               "model_weights.ckpt": weights_file.getvalue()}
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo("./" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_zero3(directory, tensors):
    """The partitions of ZeRO stage 3: every rank has an equal range of each flattened parameter, in float32."""
    write_json(directory / "config.json", huggingface_config())
    (directory / "latest").write_text("global_step1")
    step = directory / "global_step1"
    step.mkdir(exist_ok=True)
    for rank in range(ZERO_RANKS):
        ranges = []
        for tensor in tensors.values():
            flat = tensor.float().flatten()
            flat = torch.cat([flat, torch.zeros(-len(flat) % ZERO_RANKS)])
            ranges.append(flat.chunk(ZERO_RANKS)[rank])
        torch.save({"module": {}, "buffer_names": [], "shared_params": {}, "frozen_param_shapes": None,
                    "frozen_param_fragments": None, "ds_version": "0.14.0",
                    "param_shapes": [collections.OrderedDict((name, t.shape) for name, t in tensors.items())]},
                   step / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        torch.save({"optimizer_state_dict": {"zero_stage": 3, "partition_count": ZERO_RANKS,
                                             "fp32_flat_groups": [torch.cat(ranges)]}},
                   step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def write_jax(directory, tensors):
    write_json(directory / "config.json", huggingface_config())
    arrays = {name: tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for name, tensor in tensors.items()}
    (directory / "flax_model.msgpack").write_bytes(flax.serialization.to_bytes(flax_names(arrays)))


def main():
    serialization.save.storage_alignment = 16  # smaller files
    root = pathlib.Path(sys.argv[1])
    tensors = weights()
    write_huggingface(root / "huggingface", tensors)
    write_huggingface_bin(root / "huggingface_bin", tensors)
    write_checkpoint(root / "checkpoint_tp2_pp2", tensors)
    write_nemo(root / "model.nemo", tensors)
    write_zero3(root / "deepspeed_zero3", tensors)
    write_jax(root / "jax_msgpack", tensors)


if __name__ == "__main__":
    main()
