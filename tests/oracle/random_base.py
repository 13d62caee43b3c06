"""Random base models for the comparisons with PEFT: transformers' models and their engines."""

import subprocess
import sys

import torch
import transformers

import llama_goldens as llama
import peft_family_goldens as family


class Refused(Exception):
    """The program's error line, when it exits with a status other than 0."""


def call(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    lines = done.stderr.strip().splitlines()
    if done.returncode not in (0, 2) or done.returncode == 2 and len(lines) != 1:
        sys.exit(f"{' '.join(map(str, command))}\nstatus {done.returncode}: {done.stderr}")
    if done.returncode:
        raise Refused(lines[0])


class RandomBase:
    """A tiny Llama or Mistral in `path`. With `quantised` its weights are int8 or int4."""

    def __init__(self, rng, generator, path, quantised=False):
        self.path = path
        self.dtype_name = rng.choice(["float32"] * 5 + ["bfloat16", "float16"])
        self.dtype = llama.DTYPES[self.dtype_name]
        self.variant = {"dtype": rng.choice(["float32"] * 3 + ["bfloat16", "float16"]), "old_config": rng.random() < 0.5}
        self.config = self._random_config(rng, quantised)
        if quantised:
            bits = rng.choice([8, 4])
            group = rng.choice([0, *[size for size in (32, 64) if self._sizes_divide_by(size)]])
            head = not self.config["tie_word_embeddings"] and rng.random() < 0.5
            self.variant["quantise"] = {"bits": bits, "group_size": group, "head": head}
        shapes = transformers.LlamaConfig(**self.config)
        model = transformers.LlamaForCausalLM(shapes)
        if rng.random() < 0.3 and not (shapes.attention_bias or shapes.mlp_bias):
            model = transformers.MistralForCausalLM(transformers.MistralConfig(**self.config, sliding_window=None))
        llama.save_model(llama.fill(model, generator), self.variant, path)
        self.flags = self._random_flags(rng)
        self.limits = ["--max_num_tokens", rng.choice([64, 128, 2048]), "--tokens_per_block", rng.choice([16, 64])]

    @staticmethod
    def _random_config(rng, quantised):
        kv_heads = rng.choice([1, 2, 3])
        heads = kv_heads * rng.choice([1, 2, 3])
        head_dim = rng.choice([None, None, 6, 8, 10, 14, 16, 22])
        hidden = heads * (rng.choice([3, 4, 5, 7, 8, 11, 13]) if head_dim else rng.choice([4, 6, 8, 10, 12, 16]))
        intermediate = rng.choice([13, 20, 32, 45, 64, 70, 100])
        vocab = rng.choice([33, 40, 45, 64, 97, 130])
        if quantised and rng.random() < 0.5:
            heads, kv_heads, head_dim = rng.choice([(4, 2, 8), (2, 1, 16), (4, 4, 16), (8, 2, 12)])
            hidden, intermediate = rng.choice([32, 64, 96]), rng.choice([32, 64, 160])
        elif quantised:  # Two rows of int4 share a byte.
            hidden, intermediate = hidden + hidden % 2 * heads, intermediate + intermediate % 2
            head_dim = head_dim or hidden // heads + hidden // heads % 2
        if quantised:
            vocab = 2 * (vocab // 2)
        config = {"num_hidden_layers": rng.choice([1, 2, 2, 3, 4, 11]), "hidden_size": hidden,
                  "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": intermediate,
                  "vocab_size": vocab, "rms_norm_eps": rng.choice([1e-5, 1e-6, 1e-3]),
                  "tie_word_embeddings": rng.random() < 0.4, "attention_bias": rng.random() < 0.3,
                  "mlp_bias": rng.random() < 0.3}
        return {**llama.BASE, **config, **({"head_dim": head_dim} if head_dim else {})}

    def _sizes_divide_by(self, group):
        config = self.config
        width = config["num_attention_heads"] * config.get("head_dim", 1)
        return not any(size % group for size in (config["hidden_size"], config["intermediate_size"], width))

    def _random_flags(self, rng):
        config, flags = self.config, ["--dtype", self.dtype_name]
        quantise = self.variant.get("quantise", {})
        if quantise:
            flags += ["--use_weight_only", "--weight_only_precision", f"int{quantise['bits']}", "--group_size",
                      quantise["group_size"], *(["--quantize_lm_head"] if quantise["head"] else [])]
        cut = [config["intermediate_size"], config["num_attention_heads"] * config.get("head_dim", 1)]
        part = 2 * (quantise.get("group_size") or 2)  # a rank needs whole groups of inputs and pairs of int4 outputs
        if rng.random() < 0.3 and config["num_attention_heads"] % 2 == 0 and config["num_key_value_heads"] < 3 and \
                not any(size % part for size in cut) and not (quantise.get("head") and config["vocab_size"] % 4):
            table = rng.choice([[], ["--use_parallel_embedding"],
                                ["--use_parallel_embedding", "--embedding_sharding_dim", 1]])
            flags += ["--tp_size", 2, *(table if config["hidden_size"] % 2 == 0 else [])]
        if rng.random() < 0.2 and config["num_hidden_layers"] % 2 == 0:
            flags += ["--pp_size", 2]
        return flags

    def build(self, chorus, directory):
        """Builds the engine and returns its directory."""
        call(chorus, "convert", "--model_dir", self.path, "--output_dir", directory / "checkpoint", *self.flags)
        call(chorus, "build", "--checkpoint_dir", directory / "checkpoint", "--output_dir", directory / "engine",
             "--lora_plugin", "enable", "--dora_plugin", "enable", "--log_level", "warning", *self.limits)
        return directory / "engine"

    def load(self, vocab=None, generator=None):
        """Loads transformers' model with the engine's weights. Rows for added tokens are NaN, because PEFT gets them
        only from an adapter; with `generator` they are random, for making an adapter.
        """
        model = family.load_base(self.path, self.variant, self.dtype)
        if vocab is None:
            return model
        model.resize_token_embeddings(vocab, mean_resizing=False)
        with torch.no_grad():
            for table in [model.get_input_embeddings(), model.get_output_embeddings()]:
                rows = table.weight[self.config["vocab_size"] :]
                std = float(table.weight[: self.config["vocab_size"]].std())
                rows.copy_(llama.normal(generator, rows.shape, std) if generator else torch.full(rows.shape, torch.nan))
        return model

    def tolerance(self, logits):
        """Allowed difference of logits, and half the allowed difference of log probabilities. It covers rounding of
        float32 sums, and with 16 bits also rounding of the cache and of inputs.
        """
        return (1e-4 if self.dtype_name == "float32" else 6e-2) * max(1.0, float(logits[logits > -torch.inf].abs().max()))

    def __str__(self):
        return f"base {self.config} {self.variant} with {' '.join(map(str, self.flags + self.limits))}"
