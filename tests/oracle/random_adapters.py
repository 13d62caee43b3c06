"""Random LoraConfigs with all features of PEFT's LoRA family, and adapters of them in the forms that PEFT and its users
save.
"""

import copy
import json

import peft
import safetensors.torch
import torch

import llama_goldens as llama
import peft_family_goldens as family

REGEXES = [r".*\.(q|v)_proj", r"model\.layers\.\d+\.self_attn\..*_proj", r".*(gate|up|down)_proj$",
           r"^model\.layers\.[0-2]\..*proj", r".*layers\.(?P<n>[01])\.mlp\.(?!up).*_proj", r"(?i).*Q_PROJ|.*k_proj",
           r".*_proj|lm_head", r".*(embed_tokens|o_proj)", r".*\.1?[0-9]\..*proj"]
PATTERNS = [*llama.ALL, "mlp.up_proj", r".*\.0\..*", "model.layers.0.self_attn.q_proj", r"(q|k)_proj", "embed_tokens",
            "lm_head", "q_proj.weight", "^model.layers.0.mlp.gate_proj", "proj"]
SAVED = [["lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"], ["norm"], ["post_attention_layernorm", "model.norm"],
         ["mlp"], ["layers.0"], ["layers.0.self_attn"], ["model.norm", "k_proj"], ["lm_head", "norm"], ["0"],
         ["self_attn", "lm_head"], ["q_proj", "v_proj"], ["down_proj"], ["model"]]


def targets(rng, layers):
    """Random target_modules and target_parameters."""
    kind = rng.choice(["names"] * 6 + ["regex"] * 3 + ["all-linear", "parameters", "parameters", "none"])
    if kind == "regex":
        return {"target_modules": rng.choice(REGEXES)}
    if kind == "all-linear":
        return {"target_modules": "all-linear"}
    if kind == "none":
        return {"target_modules": rng.choice([[], "dummy-target-modules"])}
    if kind == "parameters":
        names = [f"{module}.weight" for module in [*llama.ALL, "self_attn.q_proj", "lm_head", "embed_tokens",
                                                   f"model.layers.{rng.randrange(layers)}.mlp.up_proj"]]
        return {"target_modules": rng.choice([None, [rng.choice(llama.ALL)]]),
                "target_parameters": rng.sample(names, rng.randrange(1, 5))}
    names = rng.sample(llama.ALL, rng.randrange(1, 8))
    if rng.random() < 0.25:
        names = [f"layers.{rng.randrange(layers)}.self_attn.{rng.choice(family.ATTENTION)}", f"mlp.{rng.choice(llama.MLP)}"]
    names += ["embed_tokens"] * (rng.random() < 0.2) + ["lm_head"] * (rng.random() < 0.2)
    return {"target_modules": names}


def token_indices(rng, vocab, added):
    some = lambda: rng.sample(range(vocab), rng.randrange(1, 6))
    same = some() + list(range(vocab, vocab + added)) * (rng.random() < 0.7)
    return rng.choice([same, same, {"embed_tokens": same, "lm_head": same}, {"model.embed_tokens": some()},
                       {"embed_tokens": some(), "lm_head": some()}, {"lm_head": some()},
                       {"embed_tokens": same, "lm_head": same[::-1]}])


def random_options(rng, base):
    """Returns (arguments of LoraConfig, number of added tokens, save_embedding_layers). PEFT refuses some combinations.
    """
    layers, vocab = base.config["num_hidden_layers"], base.config["vocab_size"]
    options = {"r": rng.choice([1, 2, 3, 4, 5, 8, 16, 17]), "lora_alpha": rng.choice([1, 3, 6, 8, 16, 0.5, 7.25, -4]),
               "task_type": rng.choice(["CAUSAL_LM", None]), **targets(rng, layers)}
    added = rng.choice([1, 3, 8, 17]) if rng.random() < 0.15 else 0

    def maybe(chance, **choices):
        if rng.random() < chance:
            options.update({name: rng.choice(values) for name, values in choices.items()})

    maybe(0.2, exclude_modules=[[rng.choice(llama.ALL)], ["layers.0.self_attn.q_proj"], r".*\.0\..*", r".*mlp.*", ["lm_head"]])
    if not isinstance(options["target_modules"], str):
        maybe(0.2, layers_to_transform=[0, layers - 1, [0], [0, 99]],
              layers_pattern=[None, None, "layers", ["layers"], ["h", "layers"], "lay.*", "s"])
    maybe(0.3, rank_pattern=[{rng.choice(PATTERNS): rng.choice([1, 2, 6, 9, 20]) for _ in range(rng.randrange(1, 4))}])
    maybe(0.3, alpha_pattern=[{rng.choice(PATTERNS): rng.choice([1, 2.5, 9, -3]) for _ in range(rng.randrange(1, 4))}])
    maybe(0.3, use_rslora=[True])
    maybe(0.3, bias=["all", "lora_only"])
    maybe(0.1, init_lora_weights=["gaussian", "orthogonal", False])
    if not options.get("target_parameters") or rng.random() < 0.1:
        maybe(0.25, use_dora=[True])
        maybe(0.1, fan_in_fan_out=[True])
        if not options.get("use_dora") or rng.random() < 0.1:
            maybe(0.2, lora_bias=[True], init_lora_weights=[True])
    bare = options["target_modules"] in ([], "dummy-target-modules")
    maybe(0.6 if bare else 0.3, modules_to_save=[*SAVED, [rng.choice(llama.ALL)]])
    if rng.random() < 0.2 or added and rng.random() < 0.4 or bare and "modules_to_save" not in options:
        options["trainable_token_indices"] = token_indices(rng, vocab, added)
    maybe(0.15, ensure_weight_tying=[True])
    return options, added, rng.choice(["auto", "auto", True, bool(added)])


def linears_only(rng, base):
    """Like random_options, limited to what `lora-convert` accepts."""
    while True:
        options, *_ = random_options(rng, base)
        for name in ("bias", "lora_bias", "modules_to_save", "trainable_token_indices", "target_parameters",
                     "ensure_weight_tying"):
            options.pop(name, None)
        modules = options["target_modules"]
        if modules and not any(other in str(modules) for other in ("embed_tokens", "lm_head", "dummy")):
            # normalising uses the norms of the model's files
            options["use_dora"] = rng.random() < 0.5 and "quantise" not in base.variant
            return options, 0, "auto"


def save(rng, generator, base, directory, options, added, save_tables):
    """Saves the adapter with random values, in files of random types. Raises what PEFT raises."""
    model = base.load(base.config["vocab_size"] + added, generator) if added else base.load()
    adapted = peft.get_peft_model(model, peft.LoraConfig(**copy.deepcopy(options)))
    family.randomise(adapted, generator)
    adapted.save_pretrained(directory, save_embedding_layers=save_tables)
    (directory / "README.md").unlink(missing_ok=True)
    path = directory / "adapter_model.safetensors"
    types = rng.choice([[t] for t in llama.FILE_DTYPES.values()] + [list(llama.FILE_DTYPES.values())])
    # one type for embedding and head: when the model ties them, both have the same values
    table_type = rng.choice(types)
    weights = {key: value.to(table_type if "embed" in key or "lm_head" in key else rng.choice(types)).contiguous()
               for key, value in safetensors.torch.load_file(path).items()}
    if rng.random() < 0.3:
        path.unlink()
        torch.save(weights, directory / "adapter_model.bin")
    else:
        safetensors.torch.save_file(weights, path, metadata={"format": "pt"})


class RandomAdapter:
    """A random adapter in `directory` that PEFT saves, loads and runs. Raises what PEFT raises."""

    def __init__(self, rng, generator, base, directory, choose=random_options):
        self.directory, self.base = directory, base
        self.options, added, save_tables = choose(rng, base)
        self.vocab = base.config["vocab_size"] + added
        save(rng, generator, base, directory, self.options, added, save_tables)
        self.model = family.with_adapter(base.load(self.vocab) if added else base.load(), directory, base.dtype)
        with torch.no_grad():
            each = self.model(torch.arange(self.vocab)[:, None]).logits[:, -1]
        self.is_whole = bool(each.isfinite().all())  # the adapter has rows for all tokens that it adds
        # Tokens without rows cannot be used in prompts.
        self.tokens = torch.arange(self.vocab)[each.isfinite().any(1)].tolist()
        if not self.tokens or each.isinf().any():
            raise ValueError("PEFT's answers are not numbers")

    def features(self):
        return [name for name, value in self.options.items() if value and name not in ("r", "lora_alpha", "task_type")] + \
            ["added tokens"] * (self.vocab > self.base.config["vocab_size"])

    def __str__(self):
        return f"{self.directory} adds {self.vocab - self.base.config['vocab_size']}: {json.dumps(self.options)}"
