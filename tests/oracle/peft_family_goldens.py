"""Makes tests/goldens/peft_family: PEFT's LoRA adapters with contents other than low-rank matrices of linear layers.

Run by hand, never by the build or the tests:  python3 tests/oracle/peft_family_goldens.py tests/goldens/peft_family
Layout and numbers are those of llama_goldens.py. Each adapter is loaded onto its own model, because PEFT writes the
biases and embeddings of an adapter into the base that all adapters share. See tests/README.md.
"""

import contextlib
import warnings

import numpy
import peft
import safetensors.torch
import torch
import transformers

import llama_goldens as llama
import quantised_goldens as quantised

SEED = 20250607
llama.NEW_TOKENS = 16
LENGTHS = [*llama.LENGTHS, 9, 12]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ADAPTERS = {
    "embeddings": dict(r=3, lora_alpha=6, target_modules=["q_proj", "embed_tokens", "lm_head"]),
    "dora_embeddings": dict(r=2, lora_alpha=5, use_dora=True,
                            target_modules=["k_proj", "down_proj", "embed_tokens", "lm_head"]),
    "saved": dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["embed_tokens", "lm_head", "norm"]),
    "saved_linears": dict(r=2, lora_alpha=4, target_modules=["q_proj", "gate_proj"],
                          modules_to_save=["k_proj", "up_proj"]),
    "saved_blocks": dict(r=2, lora_alpha=4, target_modules=["down_proj"], modules_to_save=["layers.1.self_attn"]),
    "bias_all": dict(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], bias="all", lora_bias=True),
    "bias_dora": dict(r=2, lora_alpha=4, target_modules=llama.ALL, bias="lora_only", use_dora=True),
    "lora_bias": dict(r=4, lora_alpha=6, target_modules=["o_proj", "up_proj", "lm_head"], lora_bias=True,
                      use_rslora=True),
    "tokens": dict(r=2, lora_alpha=4, target_modules=["o_proj"],
                   trainable_token_indices={"embed_tokens": [11, 3, 4, 44], "lm_head": [5, 2, 3, 40]}),
    "parameters": dict(r=2, lora_alpha=4, target_modules=["k_proj"],
                       target_parameters=["q_proj.weight", "mlp.down_proj.weight", "embed_tokens.weight",
                                          "lm_head.weight"],
                       rank_pattern={"q_proj.weight": 3, "q_proj": 7}, alpha_pattern={"lm_head.weight": 3}),
    "tied_lora": dict(r=3, lora_alpha=6, target_modules=["q_proj", "lm_head", "embed_tokens"],
                      ensure_weight_tying=True),
    "embedding_alone": dict(r=3, lora_alpha=6, target_modules=["q_proj", "embed_tokens"]),
    "tied_tokens": dict(r=2, lora_alpha=4, target_modules=["v_proj"], trainable_token_indices=[7, 1, 8, 30]),
    "tied_tokens_head": dict(r=2, lora_alpha=4, target_modules=["v_proj", "lm_head"],
                             trainable_token_indices=[7, 1, 8, 30]),
    "other_tokens": dict(r=2, lora_alpha=4, target_modules=["v_proj"],
                         trainable_token_indices={"embed_tokens": [1, 20], "lm_head": [2, 20]}),
    "tied_saved": dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["embed_tokens"],
                       ensure_weight_tying=True),
    "saved_embedding": dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["embed_tokens"]),
    "other_base": dict(r=2, lora_alpha=4, target_modules=["v_proj", "embed_tokens"]),
}
VARIANTS = {
    "peft_bias": dict(
        dtype="bfloat16", old_config=False,
        config=dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=28, vocab_size=45,
                    attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5),
        adapters=["embeddings_f32", "dora_embeddings_f32", "saved_bf16", "saved_linears_bf16", "bias_all_f32",
                  "bias_dora_f32", "lora_bias_f16", "tokens_f32", "parameters_f32"]),
    "peft_tied": dict(
        dtype="bfloat16", old_config=True,
        config=dict(hidden_size=36, num_attention_heads=6, num_key_value_heads=2, intermediate_size=20, vocab_size=42,
                    tie_word_embeddings=True, rms_norm_eps=1e-5),
        adapters=["tied_lora_f32", "embedding_alone_f32", "tied_tokens_f32", "tied_tokens_head_f32",
                  "other_tokens_f32", "tied_saved_bf16", "saved_embedding_bf16", "other_base_f32"]),
    "peft_int4": dict(
        dtype="bfloat16", old_config=False, quantise=dict(bits=4, group_size=32, head=False),
        config=dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=64,
                    vocab_size=45, attention_bias=True, rms_norm_eps=1e-5),
        adapters=["dora_embeddings_f32", "saved_linears_bf16", "saved_blocks_bf16", "bias_all_f32", "tokens_f32",
                  "parameters_f32"]),
}


def randomise(adapted, generator):
    """Sets random values for everything the adapter trains, large enough to change the model's answers."""
    scaling = {name: module.scaling["default"] for name, module in adapted.named_modules()
               if isinstance(module, peft.tuners.lora.LoraLayer)}
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if not parameter.requires_grad:
                continue
            rank_scale = 1.0
            if ".lora_" in name:
                module = name.split(".lora_")[0]
                rank_scale = scaling[module]
            if name.endswith(".bias"):
                parameter.copy_(llama.normal(generator, parameter.shape, 0.3))
            elif "lora_magnitude_vector" in name:
                parameter.mul_(torch.empty(parameter.shape).uniform_(0.6, 1.4, generator=generator))
            elif ".lora_embedding_A" in name:
                parameter.copy_(llama.normal(generator, parameter.shape, 1.0))
            elif ".lora_A" in name:
                parameter.copy_(llama.normal(generator, parameter.shape, parameter.shape[1] ** -0.5))
            elif ".lora_B" in name or ".lora_embedding_B" in name:
                parameter.copy_(llama.normal(generator, parameter.shape, 0.7 / (rank_scale * parameter.shape[1] ** 0.5)))
            elif parameter.dim() == 1:
                parameter.copy_(torch.empty(parameter.shape).uniform_(0.5, 1.5, generator=generator))
            else:
                parameter.add_(llama.normal(generator, parameter.shape, 0.7 * float(parameter.std())))


def save_adapter(path, variant, name, generator):
    kind, _, file_dtype = name.rpartition("_")
    model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[kind]))
    randomise(adapted, generator)

    def changed(weights):
        if kind == "other_base":
            key = "base_model.model.model.embed_tokens.base_layer.weight"
            weights[key] = weights[key] + llama.normal(generator, weights[key].shape, float(weights[key].std()))
        return weights

    llama.write_adapter(adapted, path / "adapters" / name, llama.FILE_DTYPES[file_dtype], indent=1, changed=changed)


def load_base(path, variant, dtype):
    """Loads the stored model to compute in float32, with its weights rounded to dtype or quantised."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    quantise = variant.get("quantise")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if quantise and quantised.is_quantised(name, quantise):
                values = quantised.quantised(parameter.numpy(), quantise["bits"], quantise["group_size"], dtype)
                parameter.copy_(torch.from_numpy(values))
            else:
                parameter.copy_(parameter.to(dtype))
    return model.eval()


def load_adapted(path, variant, adapter, dtype):
    return with_adapter(load_base(path, variant, dtype), path / "adapters" / adapter, dtype)


def with_adapter(base, directory, dtype):
    """A base of load_base with one adapter. The adapter's matrices are rounded to dtype, its vectors are not."""
    head = base.get_output_embeddings().weight
    base_head = head.detach().clone()
    model = peft.PeftModel.from_pretrained(base, directory).float()
    brought = ("lora_A", "lora_B", "lora_embedding", "modules_to_save", "trainable_tokens", "embed_tokens", "lm_head")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # A head that stays the base's may be quantised, and its dequantised values need not be values of dtype.
            if parameter is head and torch.equal(head.nan_to_num(), base_head.nan_to_num()):
                continue
            if parameter.dim() == 2 and any(part in name for part in brought):
                parameter.copy_(parameter.to(dtype))
    return model.eval()


class SoloModels:
    """Used like one model with all adapters, but holds a separate model for the base and for each adapter."""

    def __init__(self, path, variant, dtype):
        self.base = load_base(path, variant, dtype)
        self.adapted = {name: load_adapted(path, variant, name, dtype) for name in variant["adapters"]}
        self.current = self.base

    @contextlib.contextmanager
    def disable_adapter(self):
        self.current = self.base
        yield

    def set_adapter(self, name):
        self.current = self.adapted[name]

    def __call__(self, **inputs):
        return self.current(**inputs)


def make_variant(name, variant, index, root):
    generator = torch.Generator().manual_seed(SEED + index)
    path = root / name
    model = llama.random_model(variant, generator)
    with torch.no_grad():
        for layer in model.model.layers:
            # With few dimensions per head, little of the cache's rounding is averaged out of the attention scores.
            layer.self_attn.q_proj.weight.mul_(0.5)
    llama.save_model(model, variant, path)
    for adapter in variant["adapters"]:
        save_adapter(path, variant, adapter, generator)
    models = {dtype: SoloModels(path, variant, llama.DTYPES[dtype]) for dtype in llama.DTYPES}
    lengths = LENGTHS[index:] + LENGTHS[:index]
    quantise = {"quantise": variant["quantise"]} if "quantise" in variant else {}
    llama.write_rows(name, path, models, variant["adapters"], variant["config"]["vocab_size"], lengths, generator,
                     **quantise)


ADDED = 5
GROWN = {
    "grown": dict(r=2, lora_alpha=4, target_modules=["q_proj"]),
    "grown_dora": dict(r=2, lora_alpha=4, use_dora=True, target_modules=["v_proj", "embed_tokens", "lm_head"]),
    "grown_saved": dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["embed_tokens", "lm_head"]),
    # Tokens from the model's last one on: one existing token and the added ones.
    "grown_tokens": dict(r=2, lora_alpha=4, target_modules=["v_proj"], trainable_token_indices="last"),
}


def load_grown(path, vocab):
    """Loads the stored model with embedding rows for more tokens; the adapter supplies their values."""
    model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    model.resize_token_embeddings(vocab, mean_resizing=False)
    return model


def make_grown(variant_name, index, root):
    """Adapters that add tokens to a variant's model. Makes a prompt with some of these tokens and its logits in
    float32.
    """
    generator = torch.Generator().manual_seed(SEED + 100 + index)
    path = root / variant_name
    model_vocab = VARIANTS[variant_name]["config"]["vocab_size"]
    vocab = model_vocab + ADDED
    expected = {}
    for name, options in GROWN.items():
        options = dict(options)
        if options.get("trainable_token_indices") == "last":
            options["trainable_token_indices"] = list(range(model_vocab - 1, vocab))
        model = load_grown(path, vocab)
        with torch.no_grad():
            for table in [model.get_input_embeddings(), model.get_output_embeddings()]:
                # Until here the values of the new rows are random and unseeded.
                std = float(table.weight[:model_vocab].std())
                rows = table.weight[model_vocab:]
                rows.copy_(llama.normal(generator, rows.shape, std))
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
        randomise(adapted, generator)
        target = root / "grown" / variant_name / name
        llama.write_adapter(adapted, target, torch.float16, indent=1)
        loaded = peft.PeftModel.from_pretrained(load_grown(path, vocab), target).eval()
        prompt = torch.randint(0, vocab, (11,), generator=generator)
        prompt[3], prompt[7] = vocab - 1, model_vocab
        with torch.no_grad():
            expected[f"{name}.logits"] = loaded(prompt[None]).logits[0].contiguous()
        expected[f"{name}.prompt"] = prompt.to(torch.int32)
    safetensors.torch.save_file(expected, root / "grown" / variant_name / "expected.safetensors")


def make_all_grown(root):
    for index, name in enumerate(["peft_bias", "peft_tied"]):
        make_grown(name, index, root)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    llama.make_goldens("peft_family_goldens", SEED, VARIANTS, make_variant, make_all_grown, numpy=numpy.__version__)
