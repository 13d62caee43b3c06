"""Goldens of further architectures: tiny models of any class of transformers, with weights from hashed_weights.py.

Each family has a script of its own, which lists its variants and calls make(). Run it by hand, never by the build or
the tests:  python3 tests/oracle/FAMILY_goldens.py tests/goldens/FAMILY
A variant stores no weights, so its models are as large as Llama's; only vocabularies are small, because of the logits.
"""

import copy
import json
import pathlib
import shutil
import tempfile

import peft
import torch
import transformers

import experts
import hashed_weights
import llama_goldens as llama

# Every adapter kind, on the linears that the family calls `all`.
ADAPTERS = {
    "lora_r8": dict(r=8, lora_alpha=16),
    "dora_r4": dict(r=4, lora_alpha=8, use_dora=True),
    "rslora_r5": dict(r=5, lora_alpha=7, use_rslora=True),
}
FILE_DTYPES = {"f32": "F32", "bf16": "BF16", "f16": "F16"}
MODEL_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


class Rules:
    """Center and deviation of every tensor of a variant.

    gains: module name -> gain of a linear, whose weights have the deviation gain / sqrt(inputs). transposed: modules
    whose weights are [inputs, outputs]. tables: module name -> deviation of an embedding. bias: deviation of biases.
    norm: center of the weights of norms; norms: module name -> center of those that have another.
    """

    def __init__(self, gains, tables, transposed=(), bias=0.3, norm=1.0, norms={}):
        self.gains, self.tables, self.transposed, self.bias = gains, tables, transposed, bias
        self.norm, self.norms = norm, norms

    def of_model(self, name, shape):
        module, kind = name.split(".")[-2:]
        if kind in self.gains:  # a parameter of all experts
            module = kind
        if module in self.tables:
            return 0.0, self.tables[module]
        if module in self.gains:
            inputs = shape[0] if module in self.transposed else shape[-1]
            return 0.0, self.bias if kind == "bias" else self.gains[module] / inputs**0.5
        # All other modules are norms.
        return (0.0, self.bias) if kind == "bias" else (self.norms.get(module, self.norm), 0.2)

    def of_adapter(self, config):
        scaling = config["lora_alpha"] / (config["r"] ** 0.5 if config["use_rslora"] else config["r"])

        def rule(name, shape):
            if "lora_A" in name:
                return 0.0, shape[1] ** -0.5
            if "lora_B" in name:
                return 0.0, 0.7 / (scaling * config["r"] ** 0.5)
            if "lora_magnitude_vector" in name:
                # Near the norm of a row of W + scale B A.
                gain = self.gains[name.split(".")[-2]]
                return (gain**2 + 0.5) ** 0.5, 0.2
            return self.of_model(name.replace(".base_layer", ""), shape)

        return rule


def save_adapter(model, name, targets, extra, path):
    kind, _, file_dtype = name.rpartition("_")
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=targets, **ADAPTERS[kind], **extra)
    llama.write_adapter(peft.get_peft_model(copy.deepcopy(model), config), path, llama.FILE_DTYPES[file_dtype])
    return json.loads((path / "adapter_config.json").read_text())


def make_variant(name, variant, index, root, seed):
    generator = torch.Generator().manual_seed(seed + index)
    path = root / name
    config = variant["config"]
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch)
        model = variant["model"](config).eval()
        llama.save_model(model, variant, made)
        variant.get("prepare", lambda model: None)(model)
        written = json.loads((made / "config.json").read_text())
        written = variant.get("rewrite", lambda config: config)(written)
        written = {key: value for key, value in written.items() if key not in variant.get("without", ())}
        (made / "config.json").write_text(json.dumps({**written, **variant.get("keys", {})}, indent=2, sort_keys=True) + "\n")
        rules = variant["rules"]
        files = [hashed_weights.rewrite(made, "model.safetensors", seed + index, MODEL_DTYPES[variant["dtype"]],
                                        rules.of_model)]
        for adapter in variant["adapters"]:
            at = f"adapters/{adapter}"
            extra = variant.get("peft_of", {}).get(adapter, variant.get("peft", {}))
            peft_config = save_adapter(model, adapter, variant["targets"], extra, made / at)
            files.append(hashed_weights.rewrite(made, f"{at}/adapter_model.safetensors", seed + index,
                                                FILE_DTYPES[adapter.rpartition("_")[2]], rules.of_adapter(peft_config)))
        round_weights = variant.get("round_weights", llama.round_parameters)
        attention = variant.get("attention", "eager")
        model_class = variant.get("load", transformers.AutoModelForCausalLM)
        models = {dtype: llama.load_oracle(made, variant["adapters"], rounded, round_weights, attention, model_class)
                  for dtype, rounded in llama.DTYPES.items()}
        routing = experts.Routing(models, variant["top_k"], config.num_hidden_layers) if "top_k" in variant else None
        shutil.copytree(made, path, ignore=shutil.ignore_patterns("*.safetensors"))
    hashed_weights.write_description(path, files)
    llama.write_rows(name, path, models, variant["adapters"], config.get_text_config().vocab_size,
                     llama.LENGTHS[index:] + llama.LENGTHS[:index], generator, routing, variant.get("steady", False))


def make(family, seed, variants):
    llama.make_goldens(f"{family}_goldens", seed, variants,
                       lambda name, variant, index, root: make_variant(name, variant, index, root, seed))
