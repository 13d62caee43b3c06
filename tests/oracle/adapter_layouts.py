#!/usr/bin/env python3
"""Makes goldens of adapters in the layouts of several tools: one LoRA and one DoRA adapter of a tiny Llama, which PEFT
makes and saves, and the same values as the other tools write them. No tool but PEFT is needed.

Usage: adapter_layouts.py OUT_DIR [ADAPTER_DIR]   (tests/goldens/adapter_layouts)
With ADAPTER_DIR, a PEFT directory of linears beside its base's config.json (ADAPTER_DIR/../config.json), only that
adapter is written in all layouts.

The layouts follow PEFT's save_pretrained and state_dict, convert_weights.py of torchtune (hf_to_tune), and tuner/lora.py
and tuner/dora.py of mlx-lm.
"""
import json
import pathlib
import re
import shutil
import sys

import safetensors.torch
import torch
import transformers
from peft import LoraConfig, get_peft_model

PREFIX = "base_model.model."
TORCHTUNE = {"self_attn.": "attn.", "attn.o_proj": "attn.output_proj", "mlp.gate_proj": "mlp.w1",
             "mlp.down_proj": "mlp.w2", "mlp.up_proj": "mlp.w3"}
PARTS = {"lora_A.weight": "a", "lora_B.weight": "b", "lora_magnitude_vector": "m"}


def split(name):
    """("model.layers.0.self_attn.q_proj", "a")"""
    for suffix, part in PARTS.items():
        if name.endswith("." + suffix):
            return name.removeprefix(PREFIX).removesuffix("." + suffix), part
    raise ValueError(f"{name}: only linears can be written in every layout")


def pairs(rows, heads):
    """The rows of q or k in the order of torchtune's RoPE."""
    head = rows.shape[0] // heads
    rest = rows.shape[1:]
    return rows.view(heads, 2, head // 2, *rest).transpose(1, 2).reshape(rows.shape)


def torchtune(tensors, base):
    written = {}
    for name, tensor in tensors.items():
        module, part = split(name)
        heads = {"q_proj": base["num_attention_heads"], "k_proj": base["num_key_value_heads"]}.get(module.split(".")[-1])
        if heads and part != "a":
            tensor = pairs(tensor, heads)
        module = module.removeprefix("model.")
        for theirs, ours in TORCHTUNE.items():
            module = module.replace(theirs, ours)
        written[f"{module}." + {"a": "lora_a.weight", "b": "lora_b.weight", "m": "magnitude"}[part]] = tensor.clone()
    return written


def mlx(tensors):
    written = {}
    for name, tensor in tensors.items():
        module, part = split(name)
        written[f"{module}." + {"a": "lora_a", "b": "lora_b", "m": "m"}[part]] = tensor.t().contiguous()
    return written


def mlx_config(config, base):
    return {"adapter_path": "adapters", "batch_size": 4, "fine_tune_type": "dora" if config["use_dora"] else "lora",
            "grad_checkpoint": False, "iters": 1000, "learning_rate": 1e-05, "lora_parameters": {
                "dropout": 0.0, "keys": None, "rank": config["r"], "scale": config["lora_alpha"] / config["r"]},
            "lr_schedule": None, "model": "a/model", "num_layers": base["num_hidden_layers"], "optimizer": "adam",
            "seed": 0, "train": True}


def state_dict(tensors, prefix):
    """What a trainer writes that saves a state dict itself: the adapter's name is in the names."""
    def named(name):
        module, part = split(name)
        module = re.sub(r"(layers\.\d+)", r"\1._fsdp_wrapped_module", module)
        return f"{prefix}{module}." + {"a": "lora_A.default.weight", "b": "lora_B.default.weight",
                                       "m": "lora_magnitude_vector.default.weight"}[part]
    return {named(name): tensor for name, tensor in tensors.items()}


def authors_dora(tensors):
    return {name.replace("lora_magnitude_vector", "weight_m_wdecomp.weight"):
            tensor[:, None].contiguous() if tensor.dim() == 1 else tensor for name, tensor in tensors.items()}


def write(directory, config, tensors, file):
    directory.mkdir(parents=True)
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    if file.endswith(".safetensors"):
        safetensors.torch.save_file(tensors, directory / file)
    else:
        torch.save(tensors, directory / file)


def write_layouts(adapter, base, out):
    config = json.loads((adapter / "adapter_config.json").read_text())
    tensors = safetensors.torch.load_file(adapter / "adapter_model.safetensors")
    plain = {key: config[key] for key in ("peft_type", "r", "lora_alpha", "target_modules", "use_dora")}
    write(out / "torchtune", plain, torchtune(tensors, base), "adapter_model.pt")
    write(out / "torchtune_epoch", plain, torchtune(tensors, base), "adapter_3.pt")
    write(out / "mlx", mlx_config(config, base), mlx(tensors), "adapters.safetensors")
    write(out / "fsdp", config, state_dict(tensors, "_fsdp_wrapped_module.base_model.model."), "adapter_model.bin")
    write(out / "deepspeed", config, state_dict(tensors, "module.base_model.model."), "adapter_model.safetensors")
    multimodal = {name.replace("model.model.", "model.model.language_model.", 1): t for name, t in tensors.items()}
    write(out / "multimodal", config, multimodal, "adapter_model.safetensors")
    write(out / "trainer/checkpoint-20", config, tensors, "adapter_model.safetensors")
    if config["use_dora"]:
        authors = {key: value for key, value in plain.items() if key != "use_dora"} | {
            "peft_type": "DORA", "dora_simple": True, "Wdecompose_target_modules": None}
        write(out / "authors", authors, authors_dora(tensors), "adapter_model.bin")


def main(out, adapter=None):
    out = pathlib.Path(out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    if adapter:
        base = json.loads((pathlib.Path(adapter).parent / "config.json").read_text())
        return write_layouts(pathlib.Path(adapter), base, out)
    base = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=6, max_position_embeddings=32, architectures=["LlamaForCausalLM"])
    base.save_pretrained(out)
    for name in ("lora", "dora"):
        torch.manual_seed(5)
        model = get_peft_model(transformers.LlamaForCausalLM(base), LoraConfig(
            r=2, lora_alpha=5, use_dora=name == "dora", target_modules=["q_proj", "k_proj", "o_proj", "down_proj"]))
        for parameter, values in model.named_parameters():
            if "lora_" in parameter:
                torch.nn.init.normal_(values)
        model.save_pretrained(out / name / "peft")
        (out / name / "peft/README.md").unlink(missing_ok=True)
        write_layouts(out / name / "peft", base.to_dict(), out / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
