#!/usr/bin/env python3
"""Makes goldens of PEFT's configurations: adapters that PEFT saves under many configurations of one tiny model, with
the modules, ranks and scales that PEFT uses; and the fields of LoraConfig with their defaults, as PEFT writes them.

Usage: peft_configs.py OUT_DIR   (tests/goldens/peft)
The model is that of src/lora/test_model.h.
"""
import dataclasses
import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model

ALL = ["q_proj", "k_proj", "v_proj", "gate_proj", "down_proj"]
CASES = {
    "plain": dict(target_modules=["q_proj"]),
    "rslora": dict(target_modules=ALL, r=4, lora_alpha=6, use_rslora=True),
    "dora_bin": dict(target_modules=["q_proj", "down_proj"], r=2, use_dora=True),
    "ranks": dict(target_modules=ALL, r=2, rank_pattern={"k_proj|v_proj": 3, r"layers\.1\..*": 4, "q_proj": 5},
                  alpha_pattern={"^model.layers.0.self_attn.k_proj": 5, r".*\.1\.mlp\.down_proj": 7, "proj": 11}),
    "ranks_rslora": dict(target_modules=ALL, r=3, lora_alpha=5, use_rslora=True, rank_pattern={"mlp.down_proj": 1},
                         alpha_pattern={"down_proj": 9, "model.layers.1.self_attn.q_proj": 2}),
    "regex": dict(target_modules=r".*layers\.(?P<layer>1)\.(self_attn\.[qv]|mlp\.gate)_proj"),
    "exclude_list": dict(target_modules=ALL, exclude_modules=["k_proj", "layers.0.mlp.gate_proj"]),
    "exclude_regex": dict(target_modules=ALL, exclude_modules=r".*\.0\.self_attn\..*"),
    "one_layer": dict(target_modules=ALL, layers_to_transform=1),
    "some_layers_bin": dict(target_modules=ALL, layers_to_transform=[0, 5]),
    "layers_pattern": dict(target_modules=["v_proj", "down_proj"], layers_to_transform=[1], layers_pattern="layers"),
    "layers_patterns": dict(target_modules=["v_proj"], layers_to_transform=[0], layers_pattern=["h", "lay.*"]),
    "path_end": dict(target_modules=["0.self_attn.q_proj", "model.layers.1.mlp.gate_proj"]),
    "gaussian": dict(target_modules=["q_proj"], init_lora_weights="gaussian", lora_alpha=3),
    "not_zero": dict(target_modules=["q_proj"], init_lora_weights=False),
    "orthogonal": dict(target_modules=["q_proj"], r=2, init_lora_weights="orthogonal"),
}


def make_model():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=6, max_position_embeddings=32)
    return transformers.LlamaForCausalLM(config)


def fields_as_saved(directory):
    """Default values as saved in adapter_config.json, and None for fields of the class that the file lacks."""
    config = LoraConfig()
    config.save_pretrained(directory)
    saved = json.loads((directory / "adapter_config.json").read_text())
    for field in dataclasses.fields(LoraConfig):
        saved.setdefault(field.name, None)
    return saved


def main(out):
    out = pathlib.Path(out)
    shutil.rmtree(out, ignore_errors=True)
    expected = {}
    for name, options in CASES.items():
        model = get_peft_model(make_model(), LoraConfig(**{"r": 2, "task_type": "CAUSAL_LM", **options}))
        modules = {}
        for path, module in model.base_model.model.named_modules():
            if isinstance(module, peft.tuners.lora.LoraLayer):
                modules[path] = [module.r["default"], module.scaling["default"]]
                torch.nn.init.normal_(module.lora_B["default"].weight)
        expected[name] = modules
        if name.endswith("_bin"):
            # PEFT no longer writes this file, but its older versions did.
            model.save_pretrained(out / name)
            torch.save(peft.get_peft_model_state_dict(model), out / name / "adapter_model.bin",
                       _use_new_zipfile_serialization=name.startswith("some"))
            (out / name / "adapter_model.safetensors").unlink()
        else:
            model.save_pretrained(out / name)
        (out / name / "README.md").unlink(missing_ok=True)
    fields = fields_as_saved(out / "fields")
    shutil.rmtree(out / "fields")
    manifest = {"peft": peft.__version__, "modules": expected, "fields": fields}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
