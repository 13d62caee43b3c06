"""Makes tests/goldens/llama: tiny random Llamas, adapters, and answers of transformers + PEFT in float32 on the CPU.

Run by hand, never by the build or the tests:  python3 tests/oracle/llama_goldens.py tests/goldens/llama
Needs torch, transformers, peft and safetensors; manifest.json has the versions used. Seeds are fixed. See
tests/README.md for the layout of the output.
"""

import copy
import json
import pathlib
import platform
import shutil
import sys

import peft
import safetensors.torch
import torch
import transformers

SEED = 20240517
NEW_TOKENS = 16
CANDIDATES = 192  # random prompts tried for a row; the one with the widest margin in every dtype is kept
# Prompt lengths cross 64-token blocks: short ones, both sides of the first boundary, and three blocks.
LENGTHS = [150, 1, 64, 33, 5, 127, 65, 18]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]

# Sizes are no multiples of 64, nor of 16 where the shape allows it, so that every kernel handles its tails.
BASE = dict(num_hidden_layers=3, max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=None)
VARIANTS = {
    "plain": dict(
        dtype="float32", old_config=True,
        config=dict(num_hidden_layers=4, hidden_size=84, num_attention_heads=6, num_key_value_heads=2,
                    intermediate_size=148, vocab_size=211, rms_norm_eps=1e-5),
        adapters=["qv_r3_f32", "all_r8_bf16", "mlp_rslora_r16_f16", "dora_r4_f32", "pattern_f32"]),
    "tied_bias": dict(
        dtype="float32", old_config=False,
        config=dict(hidden_size=72, num_attention_heads=4, num_key_value_heads=4, intermediate_size=100,
                    vocab_size=160, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-6),
        adapters=["qv_r3_bf16", "all_r8_f32", "dora_r4_bf16"]),
    "head_dim": dict(
        dtype="bfloat16", old_config=False,
        config=dict(hidden_size=80, num_attention_heads=5, num_key_value_heads=1, head_dim=24, intermediate_size=136,
                    vocab_size=189, rms_norm_eps=1e-5),
        adapters=["all_r8_f16", "dora_r4_f32", "pattern_bf16"]),
    "rope_llama3": dict(
        dtype="bfloat16", old_config=False,
        # Wavelengths of head size 16 fall into all three regimes: kept, interpolated, divided.
        config=dict(hidden_size=96, num_attention_heads=6, num_key_value_heads=2, intermediate_size=176,
                    vocab_size=224, rms_norm_eps=1e-5,
                    rope_parameters=dict(rope_type="llama3", rope_theta=5000.0, factor=4.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64)),
        adapters=["mlp_rslora_r16_f32", "qv_r3_f32"]),
    "rope_linear": dict(
        dtype="bfloat16", old_config=True, max_shard_size="120KB",
        config=dict(hidden_size=60, num_attention_heads=6, num_key_value_heads=3, intermediate_size=116,
                    vocab_size=150, rms_norm_eps=1e-4,
                    rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
        adapters=["all_r8_bf16", "dora_r4_f16", "layers_r3_f32"]),
    "odd_sizes": dict(
        dtype="float16", old_config=True,
        config=dict(hidden_size=75, num_attention_heads=5, num_key_value_heads=5, head_dim=14, intermediate_size=129,
                    vocab_size=197, rms_norm_eps=1e-5),
        adapters=["all_r8_f16", "mlp_rslora_r16_f32", "dora_r4_f32"]),
}
ADAPTERS = {
    "qv_r3": dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"]),
    "all_r8": dict(r=8, lora_alpha=16, target_modules=ALL),
    "mlp_rslora_r16": dict(r=16, lora_alpha=24, use_rslora=True, target_modules=MLP),
    "dora_r4": dict(r=4, lora_alpha=8, use_dora=True, target_modules=ALL),
    "pattern": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "o_proj", "down_proj"],
                    rank_pattern={"model.layers.1.self_attn.q_proj": 11, "k_proj": 5},
                    alpha_pattern={"k_proj": 20, "model.layers.2.mlp.down_proj": 3}),
    "layers_r3": dict(r=3, lora_alpha=6, target_modules=ALL, layers_to_transform=[0, 2]),
}
FILE_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def normal(generator, shape, std):
    return torch.randn(shape, generator=generator) * std


def random_model(variant, generator):
    return fill(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**BASE, **variant["config"]})), generator)


def fill(model, generator):
    """Random weights with which all layers matter: unit residual branches, peaked attention, logits of deviation 3."""
    gains = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5, lm_head=3.0)
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            kind = name.split(".")[-2]
            if name.endswith("bias"):
                parameter.copy_(normal(generator, parameter.shape, 0.3))
            elif "norm" in kind:
                parameter.copy_(torch.empty(parameter.shape).uniform_(0.5, 1.5, generator=generator))
            elif kind == "embed_tokens":
                std = 3.0 / parameter.shape[1] ** 0.5 if tied else 1.0
                parameter.copy_(normal(generator, parameter.shape, std))
            else:
                parameter.copy_(normal(generator, parameter.shape, gains[kind] / parameter.shape[1] ** 0.5))
    return model.eval()


def save_model(model, variant, path):
    """Stores the model in the variant's dtype; with old_config, config.json is written in the form of transformers 4.
    """
    stored = copy.deepcopy(model).to(DTYPES[variant["dtype"]])
    stored.save_pretrained(path, max_shard_size=variant.get("max_shard_size", "50GB"),
                           save_original_format=variant.get("original_format", True))
    (path / "generation_config.json").unlink(missing_ok=True)
    config_path = path / "config.json"
    config = json.loads(config_path.read_text())
    if variant["old_config"]:
        rope = config.pop("rope_parameters")
        config["torch_dtype"] = config.pop("dtype")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None
        if rope["rope_type"] != "default":
            config["rope_scaling"] = dict(type=rope.pop("rope_type"), **rope)
    config_path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def save_adapter(model, name, path, generator):
    """Random A, B and magnitudes, large enough that the adapter changes the model's answers."""
    kind, _, file_dtype = name.rpartition("_")
    adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[kind]))
    with torch.no_grad():
        for module in adapted.modules():
            if not isinstance(module, peft.tuners.lora.Linear):
                continue
            a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
            a.copy_(normal(generator, a.shape, a.shape[1] ** -0.5))
            b.copy_(normal(generator, b.shape, 0.7 / (module.scaling["default"] * a.shape[0] ** 0.5)))
            for magnitude in module.lora_magnitude_vector.values():
                factor = torch.empty(magnitude.weight.shape).uniform_(0.6, 1.4, generator=generator)
                magnitude.weight.mul_(factor)
    write_adapter(adapted, path, FILE_DTYPES[file_dtype])


def write_adapter(adapted, path, dtype, indent=2, changed=lambda weights: weights):
    """Saves the adapter like PEFT, but with weights of dtype and without values that depend on the place and time."""
    adapted.save_pretrained(path)
    (path / "README.md").unlink(missing_ok=True)
    config_path = path / "adapter_config.json"
    config = json.loads(config_path.read_text())
    config["base_model_name_or_path"] = None
    if isinstance(config["target_modules"], list):
        config["target_modules"] = sorted(config["target_modules"])
    config_path.write_text(json.dumps(config, indent=indent, sort_keys=True) + "\n")
    weights_path = path / "adapter_model.safetensors"
    weights = changed(safetensors.torch.load_file(weights_path))
    weights = {key: value.to(dtype).contiguous() for key, value in weights.items()}
    safetensors.torch.save_file(weights, weights_path, metadata={"format": "pt"})


def round_parameters(model, dtype):
    for parameter in model.parameters():
        parameter.copy_(parameter.to(dtype))


def load_oracle(path, adapters, dtype, round_weights=round_parameters, attention="eager",
                model_class=transformers.AutoModelForCausalLM):
    """Loads the stored model to compute in float32, with its weights and the adapters' A and B rounded to dtype."""
    model = model_class.from_pretrained(path, dtype=torch.float32, attn_implementation=attention)
    with torch.no_grad():
        round_weights(model, dtype)
    model = peft.PeftModel.from_pretrained(model, path / "adapters" / adapters[0], adapter_name=adapters[0])
    for name in adapters[1:]:
        model.load_adapter(path / "adapters" / name, adapter_name=name)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_A" in key or "lora_B" in key:
                assert parameter.dtype == torch.float32
                parameter.copy_(parameter.to(dtype))
    return model.eval()


def forward(model, adapter, **inputs):
    with torch.no_grad():
        if adapter is None:
            with model.disable_adapter():
                return model(**inputs)
        model.set_adapter(adapter)
        return model(**inputs)


def generate(model, adapter, prompts):
    """Greedy tokens [n, NEW_TOKENS] and the smallest top-2 margin of each row."""
    margin = torch.full((len(prompts),), float("inf"))
    tokens, cache, inputs = [], None, prompts
    for _ in range(NEW_TOKENS):
        out = forward(model, adapter, input_ids=inputs, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        top = out.logits[:, -1].topk(2)
        margin = torch.minimum(margin, top.values[:, 0] - top.values[:, 1])
        inputs = top.indices[:, :1]
        tokens.append(inputs)
    return torch.cat(tokens, 1), margin


class RoundingCache(transformers.DynamicCache):
    """Rounds keys and values, as the cache of an engine of this dtype does."""

    def __init__(self, dtype):
        super().__init__()
        self.rounds_to = dtype

    def update(self, keys, values, *arguments, **options):
        return super().update(keys.to(self.rounds_to).float(), values.to(self.rounds_to).float(), *arguments, **options)


def movement(model, adapter, prompt, tokens, dtype):
    """How far rounded keys and values move the answer's logits, as a part of what tests/golden_tolerance.h allows for it.

    The tolerance assumes that the softmax at most doubles a relative error. It multiplies it by the scores, though, so
    where two keys have nearly equal, large scores, the logits can move further.
    """
    inputs = torch.tensor([prompt + tokens[:-1]])
    exact = forward(model, adapter, input_ids=inputs).logits[0, len(prompt) - 1 :]
    rounded = forward(model, adapter, input_ids=inputs, past_key_values=RoundingCache(dtype), use_cache=True)
    moved = (rounded.logits[0, len(prompt) - 1 :] - exact).abs().max()
    allowed = 2 * exact.abs().max() * (2 * model.config.num_hidden_layers) ** 0.5 * torch.finfo(dtype).eps / 2
    return float(moved / allowed)


def choose_prompt(models, adapter, length, vocab, generator, routing=None, steady=False):
    """Of CANDIDATES random prompts, the one with the widest margin over all dtypes and an answer that the adapter
    changes. routing: experts.Routing, of models with experts. steady: leaves out prompts whose movement is more than
    half of the tolerance; of models with experts, takes the prompt whose routing withstands most roundings.
    """
    prompts = torch.randint(0, vocab, (CANDIDATES, length), generator=generator)
    tokens, _ = generate(models["float32"], adapter, prompts)
    if routing:
        routing.forget()
    margin = torch.stack([generate(model, adapter, prompts)[1] for model in models.values()]).amin(0)
    if routing:
        margin = torch.minimum(margin, routing.margins(models, adapter, prompts, tokens))
    varied = torch.tensor([len(set(row.tolist())) >= 5 for row in tokens])
    margin[~varied] = -1
    if adapter is not None:
        base, _ = generate(models["float32"], None, prompts)
        margin[(base == tokens).all(1)] = -1
    order = margin.argsort(descending=True)
    if routing and steady:
        return prompts[routing.steadiest(models, adapter, prompts, tokens, order[margin[order] > 0])].tolist()
    for best in order.tolist():
        assert margin[best] > 0, "no candidate is varied and shows its adapter"
        prompt = prompts[best].tolist()
        dtypes = [name for name in models if steady and DTYPES[name].itemsize == 2]
        if all(movement(models[name], adapter, prompt, tokens[best].tolist(), DTYPES[name]) <= 0.5 for name in dtypes):
            return prompt


def expect(model, adapter, prompt, all_positions):
    """Tokens, and float32 logits of one teacher-forced pass from the first wanted position on."""
    tokens, margin = generate(model, adapter, torch.tensor([prompt]))
    tokens = tokens[0].tolist()
    logits = forward(model, adapter, input_ids=torch.tensor([prompt + tokens[:-1]])).logits[0]
    assert logits[len(prompt) - 1 :].argmax(-1).tolist() == tokens
    first = 0 if all_positions else len(prompt) - 1
    return tokens, round(float(margin[0]), 4), logits[first:].contiguous()


def make_variant(name, variant, index, root):
    generator = torch.Generator().manual_seed(SEED + index)
    path = root / name
    model = random_model(variant, generator)
    save_model(model, variant, path)
    for adapter in variant["adapters"]:
        save_adapter(model, adapter, path / "adapters" / adapter, generator)

    models = {dtype: load_oracle(path, variant["adapters"], DTYPES[dtype]) for dtype in DTYPES}
    lengths = LENGTHS[index:] + LENGTHS[:index]  # so that adapters get other lengths in other variants
    write_rows(name, path, models, variant["adapters"], variant["config"]["vocab_size"], lengths, generator)


DIFFERENCE_DTYPES = {"bfloat16": torch.int8, "float16": torch.int16}


def as_difference(values, base, dtype):
    """A step, and the difference of values from base as integer multiples of it. The error, half a step, is a few
    hundredths of the tolerance: a bfloat16 engine's logits differ by more than a float16 engine's.
    """
    difference = values - base
    integers = DIFFERENCE_DTYPES[dtype]
    step = max(float(f"{float(difference.abs().max()) / (torch.iinfo(integers).max * 0.99):.4g}"), 1e-9)
    return step, (difference / step).round().to(integers)


def write_rows(name, path, models, adapters, vocab, lengths, generator, routing=None, steady=False, **keys):
    """Writes case.json, with `keys` added, and expected.safetensors. models: dtype -> oracle. One prompt of each length
    is chosen; routing and steady as in choose_prompt.
    """
    choices = [None, *adapters]
    shortest = sorted(lengths)[:2]
    case = dict(new_tokens=NEW_TOKENS, adapters=adapters, **keys, rows=[])
    logits = {}
    for i, length in enumerate(lengths):
        adapter = choices[i % len(choices)]
        prompt = choose_prompt(models, adapter, length, vocab, generator, routing, steady)
        all_positions = length in shortest
        row = dict(adapter=adapter, prompt=prompt, first_logits_position=0 if all_positions else length - 1, expected={})
        for dtype, oracle in models.items():
            tokens, margin, values = expect(oracle, adapter, prompt, all_positions)
            row["expected"][dtype] = dict(tokens=tokens, min_margin=margin)
            logits[f"{dtype}.{i}"] = values
            if dtype != "float32" and tokens == row["expected"]["float32"]["tokens"]:
                step, logits[f"{dtype}.{i}"] = as_difference(values, logits[f"float32.{i}"], dtype)
                row["expected"][dtype]["logits_step"] = step
        case["rows"].append(row)
        print(f"{name} row {i} {adapter} length {length}: logits deviation {float(values.std()):.2f}, margins",
              [row["expected"][dtype]["min_margin"] for dtype in DTYPES], flush=True)
    safetensors.torch.save_file(logits, path / "expected.safetensors")
    rows = ",\n  ".join(json.dumps(row) for row in case.pop("rows"))
    (path / "case.json").write_text(json.dumps(case)[:-1] + f',\n "rows": [\n  {rows}]}}\n')


def make_goldens(script, seed, variants, make, more=lambda root: None, **versions):
    """Makes a folder of goldens at the command line's path: each variant by make, other files by more, and
    manifest.json with `versions` added.
    """
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    root = pathlib.Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    for index, (name, variant) in enumerate(variants.items()):
        make(name, variant, index, root)
    more(root)
    manifest = dict(script=f"tests/oracle/{script}.py", seed=seed, python=platform.python_version(),
                    torch=torch.__version__, transformers=transformers.__version__, peft=peft.__version__,
                    safetensors=safetensors.__version__, **versions, variants=list(variants))
    (root / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    make_goldens("llama_goldens", SEED, VARIANTS, make_variant)
