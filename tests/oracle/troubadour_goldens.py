"""Makes tests/goldens/troubadour: the golden of CONTRIBUTING's example architecture, from transformers + PEFT.

Run by hand, never by the build or the tests:  python3 tests/oracle/troubadour_goldens.py tests/goldens/troubadour

The oracle is transformers' Glm4ForCausalLM: a norm before and after each block and interleaved rotary positions on half
of a head. Its weights are written with the example's own names and order: q, k and v fused in one tensor by KV head
(the group's query heads, its key, its value), gate and up in another. Adapters are made on the oracle's separate
linears; the "fused" ones share A over q, k and v and over gate and up, like an adapter on the fused tensors.
"""

import copy
import json
import pathlib
import tempfile

import peft
import safetensors.torch
import torch
import transformers
from transformers.models.glm4 import modeling_glm4

import llama_goldens
from llama_goldens import DTYPES, FILE_DTYPES, LENGTHS, normal

SEED = 20250311
VARIANTS = {
    "troubadour": dict(
        dtype="float32",
        config=dict(num_hidden_layers=3, hidden_size=76, num_attention_heads=6, num_key_value_heads=2, head_dim=20,
                    intermediate_size=108, vocab_size=173, rms_norm_eps=1e-5, max_position_embeddings=256,
                    attention_bias=True),
        adapters=["all_r8_f32", "fused_r5_bf16", "dora_r4_f16", "fused_dora_r3_f32"]),
}
SPLIT = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "all_r8": dict(r=8, lora_alpha=16, target_modules=SPLIT),
    "fused_r5": dict(r=5, lora_alpha=10, target_modules=SPLIT),
    "dora_r4": dict(r=4, lora_alpha=8, use_dora=True, target_modules=SPLIT),
    "fused_dora_r3": dict(r=3, lora_alpha=6, use_dora=True, target_modules=SPLIT),
}
FUSED = {"wqkv": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


class SplitMlp(torch.nn.Module):
    """Glm4MLP with its fused linear split in two, so that PEFT can adapt each."""

    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def random_model(variant, generator):
    modeling_glm4.Glm4MLP = SplitMlp
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
    config = transformers.Glm4Config(**variant["config"], rope_parameters=rope, pad_token_id=None, eos_token_id=[])
    config._attn_implementation = "eager"
    model = transformers.Glm4ForCausalLM(config)
    gains = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5, lm_head=3.0)
    stored = DTYPES[variant["dtype"]]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            kind = name.split(".")[-2]
            if name.endswith("bias"):
                parameter.copy_(normal(generator, parameter.shape, 0.3))
            elif "norm" in kind:
                parameter.copy_(torch.empty(parameter.shape).uniform_(0.5, 1.5, generator=generator))
            elif kind == "embed_tokens":
                parameter.copy_(normal(generator, parameter.shape, 1.0))
            else:
                parameter.copy_(normal(generator, parameter.shape, gains[kind] / parameter.shape[1] ** 0.5))
            parameter.copy_(parameter.to(stored))
    return model.eval()


def by_kv_head(config, q, k, v):
    """Rows of q, k and v in the fused tensor's order."""
    group = config["num_attention_heads"] // config["num_key_value_heads"] * config["head_dim"]
    parts = []
    for head in range(config["num_key_value_heads"]):
        parts.append(q[head * group : (head + 1) * group])
        parts += [x[head * config["head_dim"] : (head + 1) * config["head_dim"]] for x in (k, v)]
    return torch.cat(parts).contiguous()


def fuse(config, name, tensors):
    return by_kv_head(config, *tensors) if name == "wqkv" else torch.cat(tensors).contiguous()


NORMS = dict(input_layernorm="attention_in_norm", post_self_attn_layernorm="attention_out_norm",
             post_attention_layernorm="mlp_in_norm", post_mlp_layernorm="mlp_out_norm")


def save_model(model, variant, path):
    config = variant["config"]
    tensors = {}
    source = model.state_dict()
    for name, tensor in source.items():
        kind = name.split(".")[-2]
        if kind in FUSED["wqkv"] or kind in FUSED["gate_up_proj"]:
            continue
        for old, new in NORMS.items():
            name = name.replace(f".{old}.", f".{new}.")
        tensors[name] = tensor
    for layer in range(config["num_hidden_layers"]):
        for block, fused in (("self_attn", "wqkv"), ("mlp", "gate_up_proj")):
            stem = f"model.layers.{layer}.{block}."
            for end in ("weight", "bias"):
                if stem + f"{FUSED[fused][0]}.{end}" in source:
                    parts = [source[stem + f"{part}.{end}"] for part in FUSED[fused]]
                    tensors[stem + f"{fused}.{end}"] = fuse(config, fused, parts)
    path.mkdir(parents=True)
    stored = {name: tensor.to(DTYPES[variant["dtype"]]).contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
    written = dict(config, architectures=["TroubadourForCausalLM"], model_type="troubadour", dtype=variant["dtype"],
                   hidden_act="silu", rope_theta=10000.0, partial_rotary_factor=0.5, tie_word_embeddings=False)
    (path / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")


def save_adapter(model, name, path, oracle_path, config, generator):
    """Saves the adapter to path in the form that the example's users have, and to oracle_path for the oracle's modules.
    """
    kind, _, file_dtype = name.rpartition("_")
    fused = kind.startswith("fused")
    adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[kind]))
    shared = {}  # A of a fused tensor
    with torch.no_grad():
        for module_name, module in adapted.named_modules():
            if not isinstance(module, peft.tuners.lora.Linear):
                continue
            a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
            a.copy_(normal(generator, a.shape, a.shape[1] ** -0.5))
            b.copy_(normal(generator, b.shape, 0.7 / (module.scaling["default"] * a.shape[0] ** 0.5)))
            for magnitude in module.lora_magnitude_vector.values():
                magnitude.weight.mul_(torch.empty(magnitude.weight.shape).uniform_(0.6, 1.4, generator=generator))
            stem, _, part = module_name.rpartition(".")
            for target, parts in FUSED.items():
                if fused and part in parts:
                    a.copy_(shared.setdefault(f"{stem}.{target}", a.clone()))
    llama_goldens.write_adapter(adapted, oracle_path, FILE_DTYPES[file_dtype])
    adapter_config = json.loads((oracle_path / "adapter_config.json").read_text())
    weights = safetensors.torch.load_file(oracle_path / "adapter_model.safetensors")

    if fused:
        adapter_config["target_modules"] = ["down_proj", "gate_up_proj", "o_proj", "wqkv"]
        for target, parts in FUSED.items():
            for key in [key for key in weights if f".{parts[0]}." in key]:
                tensors = [weights.pop(key.replace(f".{parts[0]}.", f".{part}.")) for part in parts]
                is_a = "lora_A" in key
                assert not is_a or all(torch.equal(tensors[0], other) for other in tensors)
                weights[key.replace(f".{parts[0]}.", f".{target}.")] = tensors[0] if is_a else fuse(config, target, tensors)
    path.mkdir(parents=True)
    safetensors.torch.save_file(weights, path / "adapter_model.safetensors", metadata={"format": "pt"})
    (path / "adapter_config.json").write_text(json.dumps(adapter_config, indent=2, sort_keys=True) + "\n")


def load_oracle(model, adapters, oracle_root, dtype):
    """Copies the model to compute in float32, with its weights and the adapters' A and B rounded to dtype."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    model = peft.PeftModel.from_pretrained(model, oracle_root / adapters[0], adapter_name=adapters[0])
    for name in adapters[1:]:
        model.load_adapter(oracle_root / name, adapter_name=name)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_A" in key or "lora_B" in key:
                assert parameter.dtype == torch.float32
                parameter.copy_(parameter.to(dtype))
    return model.eval()


def make_variant(name, variant, index, root):
    generator = torch.Generator().manual_seed(SEED + index)
    path = root / name
    model = random_model(variant, generator)
    save_model(model, variant, path)
    with tempfile.TemporaryDirectory() as scratch:
        oracle_root = pathlib.Path(scratch)
        for adapter in variant["adapters"]:
            save_adapter(model, adapter, path / "adapters" / adapter, oracle_root / adapter, variant["config"], generator)
        models = {dtype: load_oracle(model, variant["adapters"], oracle_root, DTYPES[dtype]) for dtype in DTYPES}
    llama_goldens.write_rows(name, path, models, variant["adapters"], variant["config"]["vocab_size"], LENGTHS, generator)


if __name__ == "__main__":
    llama_goldens.make_goldens("troubadour_goldens", SEED, VARIANTS, make_variant)
