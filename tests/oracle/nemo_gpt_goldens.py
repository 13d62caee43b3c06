"""Makes tests/goldens/nemo_gpt: answers of tiny Megatron GPT models, as NeMo's model_config.yaml describes them.

The reference below is a plain PyTorch decoder with Megatron's parameters: q, k and v fused by KV group, both halves of a
gated MLP in one linear, experts as Megatron core keeps them, layer norms stored as their difference from 1 (layernorm1p), rotary positions on a part of each
head. It needs no NeMo. Weights follow from a seed (hashed_weights.py), so a golden has only the config, the shapes and the
answers; tests/nemo_models_test.cc writes the .nemo files from it.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

import hashed_weights

OUT = pathlib.Path(__file__).resolve().parent.parent / "goldens/nemo_gpt"
SEED = 20261125
NEW_TOKENS = 12
RANK, ALPHA = 4, 6

VARIANTS = {
    # The structure of GPT-2B-001.
    "gpt2b": dict(
        vocabulary=37, padded=40,
        config=dict(num_layers=4, hidden_size=32, ffn_hidden_size=44, num_attention_heads=4, max_position_embeddings=64,
                    activation="fast-swiglu", normalization="layernorm1p", layernorm_epsilon=1e-5, bias=False,
                    bias_activation_fusion=False, position_embedding_type="rope", rotary_percentage=0.5,
                    share_embeddings_and_output_weights=False, override_vocab_size=37)),
    # The structure of GPT-3.
    "gpt3": dict(
        vocabulary=28, padded=28,
        config=dict(num_layers=4, hidden_size=24, num_attention_heads=4, max_position_embeddings=48, activation="gelu",
                    normalization="layernorm", layernorm_epsilon=1e-4, bias=True)),
    # Everything that these two do not have, with the names of Megatron core.
    "core": dict(
        vocabulary=30, padded=30,
        config=dict(mcore_gpt=True, num_layers=4, hidden_size=28, ffn_hidden_size=36, num_attention_heads=6, num_query_groups=2,
                    kv_channels=6, max_position_embeddings=64, activation="fast-geglu", normalization="rmsnorm",
                    layernorm_epsilon=1e-5, bias=True, position_embedding_type="rope", rotary_base=5000,
                    seq_len_interpolation_factor=2.0, share_embeddings_and_output_weights=False)),
    # The structure of Nemotron-4.
    "nemotron": dict(
        vocabulary=32, padded=32, adapts_all=True,
        config=dict(mcore_gpt=True, num_layers=4, hidden_size=32, ffn_hidden_size=46, num_attention_heads=4, num_query_groups=2,
                    max_position_embeddings=64, activation="squared-relu", normalization="layernorm1p", layernorm_epsilon=1e-5,
                    bias=False, position_embedding_type="rope", rotary_percentage=0.5,
                    share_embeddings_and_output_weights=False)),
    # Llama 3.1, which becomes LlamaForCausalLM.
    "llama": dict(
        vocabulary=34, padded=34,
        config=dict(mcore_gpt=True, num_layers=4, hidden_size=32, ffn_hidden_size=40, num_attention_heads=8, num_query_groups=4,
                    max_position_embeddings=64, activation="fast-swiglu", normalization="rmsnorm", layernorm_epsilon=1e-5,
                    bias=False, position_embedding_type="rope", rotary_base=500000, scale_positional_embedding=True,
                    share_embeddings_and_output_weights=False)),
    # Mixtral, which becomes MixtralForCausalLM: the weights of a token's experts sum to 1.
    "mixtral": dict(
        vocabulary=31, padded=32,
        config=dict(mcore_gpt=True, num_layers=4, hidden_size=32, ffn_hidden_size=40, num_attention_heads=8, num_query_groups=4,
                    max_position_embeddings=64, activation="fast-swiglu", normalization="rmsnorm", layernorm_epsilon=1e-5,
                    bias=False, position_embedding_type="rope", share_embeddings_and_output_weights=False,
                    num_moe_experts=4, moe_router_topk=2, override_vocab_size=31)),
    # The other router, experts of a size of their own and grouped tensors.
    "mixtral_grouped": dict(
        vocabulary=30, padded=30, grouped=True,
        config=dict(mcore_gpt=True, num_layers=4, hidden_size=32, ffn_hidden_size=40, num_attention_heads=4, num_query_groups=2,
                    max_position_embeddings=64, activation="swiglu", normalization="rmsnorm", layernorm_epsilon=1e-5,
                    bias=False, position_embedding_type="rope", num_moe_experts=6, moe_router_topk=3, moe_ffn_hidden_size=20,
                    moe_router_pre_softmax=True)),
}
# Names of Megatron core, and of the models before it.
def expert_linear(variant, expert, linear):
    return f"mlp.experts.{linear}.weight{expert}" if variant.get("grouped") else f"mlp.experts.local_experts.{expert}.{linear}.weight"


CORE = dict(prefix="model.", layer="model.decoder.layers.{}.", qkv="self_attention.linear_qkv",
            dense="self_attention.linear_proj", fc="mlp.linear_fc1", proj="mlp.linear_fc2",
            norm1="self_attention.linear_qkv.layer_norm_", norm2="mlp.linear_fc1.layer_norm_",
            final="model.decoder.final_layernorm.")
LEGACY = dict(prefix="model.language_model.", layer="model.language_model.encoder.layers.{}.",
              qkv="self_attention.query_key_value", dense="self_attention.dense", fc="mlp.dense_h_to_4h",
              proj="mlp.dense_4h_to_h", norm1="input_layernorm.", norm2="post_attention_layernorm.",
              final="model.language_model.encoder.final_layernorm.")


class Shape:
    def __init__(self, config):
        self.h = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.groups = config.get("num_query_groups", self.heads)
        self.d = config.get("kv_channels", self.h // self.heads)
        self.f = config.get("ffn_hidden_size", 4 * self.h)
        self.experts = config.get("num_moe_experts", 0)
        if self.experts:
            self.f = config.get("moe_ffn_hidden_size", self.f)
        self.gated = "glu" in config["activation"]
        self.qkv = (self.heads + 2 * self.groups) * self.d


def tensor_rows(variant):
    """[name, shape, center, deviation] of every tensor; {} in a name stands for the layer."""
    config, s = variant["config"], Shape(variant["config"])
    names = CORE if config.get("mcore_gpt") else LEGACY
    rows = [[names["prefix"] + "embedding.word_embeddings.weight", [variant["padded"], s.h], 0, 1.0]]
    if config.get("position_embedding_type") != "rope":
        rows.append([names["prefix"] + "embedding.position_embeddings.weight", [config["max_position_embeddings"], s.h], 0, 0.7])
    center = 0 if config["normalization"] == "layernorm1p" else 1

    def norm(name):
        rows.append([name + "weight", [s.h], center, 0.2])
        if config["normalization"] != "rmsnorm":
            rows.append([name + "bias", [s.h], 0, 0.1])

    def linear(name, out, into, gain):
        rows.append([name + ".weight", [out, into], 0, gain / math.sqrt(into)])
        if config["bias"]:
            rows.append([name + ".bias", [out], 0, 0.1])

    layer = names["layer"]
    norm(layer + names["norm1"])
    linear(layer + names["qkv"], s.qkv, s.h, 1.3)
    linear(layer + names["dense"], s.h, s.heads * s.d, 1.3)
    norm(layer + (names["norm2"] if not s.experts else "pre_mlp_layernorm."))
    if s.experts:
        rows.append([layer + "mlp.router.weight", [s.experts, s.h], 0, 2 / math.sqrt(s.h)])
        for expert in range(s.experts):
            rows.append([layer + expert_linear(variant, expert, "linear_fc1"), [2 * s.f, s.h], 0, 1.2 / math.sqrt(s.h)])
            rows.append([layer + expert_linear(variant, expert, "linear_fc2"), [s.h, s.f], 0, 1.5 / math.sqrt(s.f)])
    else:
        linear(layer + names["fc"], (2 if s.gated else 1) * s.f, s.h, 1.2)
        linear(layer + names["proj"], s.h, s.f, 1.2)
    norm(names["final"])
    if not config.get("share_embeddings_and_output_weights", True):
        rows.append([names["prefix"] + "output_layer.weight", [variant["padded"], s.h], 0, 3.0 / math.sqrt(s.h)])
    return rows


def adapter_rows(variant):
    """The same of an adapter: attention_qkv of gpt2b, and all linears of the others."""
    config, s = variant["config"], Shape(variant["config"])
    layer = (CORE if config.get("mcore_gpt") else LEGACY)["layer"]
    rows = []

    def pair(name, into, out):
        rows.append([f"{layer}{name}.linear_in.weight", [RANK, into], 0, 1 / math.sqrt(into)])
        rows.append([f"{layer}{name}.linear_out.weight", [out, RANK], 0, 0.3])

    pair("self_attention.adapter_layer.lora_kqv_adapter", s.h, s.qkv)
    if variant.get("adapts_all", variant["config"]["normalization"] != "layernorm1p"):
        pair("self_attention.adapter_layer.lora_dense_attention_adapter", s.heads * s.d, s.h)
        if s.experts:
            return rows
        pair("mlp.adapter_layer.lora_hto4h_adapter", s.h, (2 if s.gated else 1) * s.f)
        pair("mlp.adapter_layer.lora_4htoh_adapter", s.f, s.h)
    return rows


def made(rows, name, layers):
    """name -> values; the scale is rounded as it is written to the golden."""
    tensors = {}
    for row in rows:
        row[3] = float(f"{row[3] / hashed_weights.DEVIATION:.4g}")
        for layer in range(layers) if "{}" in row[0] else [0]:
            full = row[0].replace("{}", str(layer))
            tensors[full] = hashed_weights.values(f"{SEED}/{name}/{full}", row[1], row[2], row[3])
    return tensors


class Megatron:
    def __init__(self, variant, tensors, adapter):
        self.variant, self.config, self.s = variant, variant["config"], Shape(variant["config"])
        self.names = CORE if self.config.get("mcore_gpt") else LEGACY
        self.tensors, self.adapter = tensors, adapter

    def norm(self, x, name):
        weight, epsilon = self.tensors[name + "weight"], self.config["layernorm_epsilon"]
        if self.config["normalization"] == "rmsnorm":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight
        if self.config["normalization"] == "layernorm1p":
            weight = weight + 1
        return F.layer_norm(x, [self.s.h], weight, self.tensors[name + "bias"], epsilon)

    def linear(self, x, layer, name, adapter):
        prefix = self.names["layer"].format(layer)
        y = F.linear(x, self.tensors[prefix + name + ".weight"], self.tensors.get(prefix + name + ".bias"))
        a = self.adapter.get(f"{prefix}{adapter}.linear_in.weight")
        if a is None:
            return y
        return y + ALPHA / RANK * F.linear(F.linear(x, a), self.adapter[f"{prefix}{adapter}.linear_out.weight"])

    def angles(self, length):
        dims = int(self.s.d * self.config.get("rotary_percentage", 1.0))
        inverse = 1.0 / self.config.get("rotary_base", 10000) ** (torch.arange(0, dims, 2, dtype=torch.float32) / dims)
        if self.config.get("scale_positional_embedding"):
            factor, low, high, old = 8, 1, 4, 8192
            wavelength = 2 * math.pi / inverse
            smooth = (old / wavelength - low) / (high - low)
            between = (1 - smooth) * inverse / factor + smooth * inverse
            inverse = torch.where(wavelength > old / low, inverse / factor, torch.where(wavelength < old / high, inverse, between))
        positions = torch.arange(length, dtype=torch.float32) / self.config.get("seq_len_interpolation_factor", 1.0)
        return torch.outer(positions, inverse).repeat(1, 2)

    def rotated(self, x):
        if self.config.get("position_embedding_type") != "rope":
            return x
        angles = self.angles(x.shape[0])[:, None, :]
        part, rest = x[..., :angles.shape[-1]], x[..., angles.shape[-1]:]
        first, second = part.chunk(2, -1)
        return torch.cat([part * angles.cos() + torch.cat([-second, first], -1) * angles.sin(), rest], -1)

    def attention(self, x, layer):
        s, length = self.s, x.shape[0]
        mixed = self.linear(x, layer, self.names["qkv"], "self_attention.adapter_layer.lora_kqv_adapter")
        mixed = mixed.view(length, s.groups, (s.heads // s.groups + 2) * s.d)
        query, key, value = mixed.split([s.heads // s.groups * s.d, s.d, s.d], -1)
        query = self.rotated(query.reshape(length, s.heads, s.d))
        key = self.rotated(key).repeat_interleave(s.heads // s.groups, 1)
        value = value.repeat_interleave(s.heads // s.groups, 1)
        scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(s.d)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(length, -1)
        return self.linear(out, layer, self.names["dense"], "self_attention.adapter_layer.lora_dense_attention_adapter")

    def mlp(self, x, layer):
        x = self.linear(x, layer, self.names["fc"], "mlp.adapter_layer.lora_hto4h_adapter")
        activation = self.config["activation"]
        if self.s.gated:
            first, second = x.chunk(2, -1)
            # Megatron core leaves the functions unfused here, so that its gelu is the exact one.
            x = (F.silu(first) if "swiglu" in activation else F.gelu(first)) * second
        elif activation == "squared-relu":
            x = F.relu(x)**2
        else:
            x = F.gelu(x, approximate="tanh")  # fused with the bias
        return self.linear(x, layer, self.names["proj"], "mlp.adapter_layer.lora_4htoh_adapter")

    def experts(self, x, layer):
        """Megatron core's TopKRouter and SequentialMLP."""
        prefix, top_k = self.names["layer"].format(layer), self.config["moe_router_topk"]
        scores = F.linear(x, self.tensors[prefix + "mlp.router.weight"])
        best = scores.topk(top_k + 1).values
        assert (best[:, -2] - best[:, -1]).min() > 2e-3, "a close choice of experts"
        if self.config.get("moe_router_pre_softmax"):
            weights, chosen = scores.softmax(-1).topk(top_k)
        else:
            top, chosen = scores.topk(top_k)
            weights = top.softmax(-1)
        out = torch.zeros_like(x)
        for row in range(x.shape[0]):
            for weight, expert in zip(weights[row], chosen[row].tolist()):
                fc, proj = (self.tensors[prefix + expert_linear(self.variant, expert, name)] for name in ("linear_fc1", "linear_fc2"))
                first, second = F.linear(x[row], fc).chunk(2)
                out[row] += weight * F.linear(F.silu(first) * second, proj)
        return out

    def logits(self, tokens):
        x = self.tensors[self.names["prefix"] + "embedding.word_embeddings.weight"][tokens]
        positions = self.tensors.get(self.names["prefix"] + "embedding.position_embeddings.weight")
        if positions is not None:
            x = x + positions[:len(tokens)]
        for layer in range(self.config["num_layers"]):
            prefix = self.names["layer"].format(layer)
            x = x + self.attention(self.norm(x, prefix + self.names["norm1"]), layer)
            if self.s.experts:
                x = x + self.experts(self.norm(x, prefix + "pre_mlp_layernorm."), layer)
            else:
                x = x + self.mlp(self.norm(x, prefix + self.names["norm2"]), layer)
        head = self.tensors.get(self.names["prefix"] + "output_layer.weight",
                                self.tensors[self.names["prefix"] + "embedding.word_embeddings.weight"])
        return F.linear(self.norm(x, self.names["final"]), head)[:, :self.variant["vocabulary"]]

    def answer(self, prompt):
        tokens, rows = list(prompt), []
        for _ in range(NEW_TOKENS):
            last = self.logits(tokens)[-1]
            top = last.topk(2).values
            assert top[0] - top[1] > 5e-3, f"a margin of {top[0] - top[1]}"
            rows.append(last)
            tokens.append(int(last.argmax()))
        return tokens[len(prompt):], rows


def make(name, variant):
    layers = variant["config"]["num_layers"]
    rows, adapter = tensor_rows(variant), adapter_rows(variant)
    tensors, low_rank = made(rows, name, layers), made(adapter, name + "/adapter", layers)
    generator = torch.Generator().manual_seed(SEED)
    answers = []
    while len(answers) < 4:
        prompt = torch.randint(0, variant["vocabulary"], (5 + 9 * len(answers),), generator=generator).tolist()
        try:
            adapted = len(answers) % 2 == 1
            generated, logits = Megatron(variant, tensors, low_rank if adapted else {}).answer(prompt)
        except AssertionError:  # a close decision: another prompt
            continue
        answers.append(dict(adapter=adapted, prompt=prompt, tokens=generated,
                            first_logits=[round(float(x), 5) for x in logits[0]],
                            last_logits=[round(float(x), 5) for x in logits[-1]]))
    return dict(seed=SEED, vocabulary=variant["vocabulary"], config=variant["config"], rank=RANK, alpha=ALPHA,
                tensors=rows, adapter=adapter, answers=answers)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        for name, variant in VARIANTS.items():
            golden = make(name, variant)
            lines = ",\n".join(f"{json.dumps(key)}: " + ("[\n " + ",\n ".join(map(json.dumps, value)) + "]"
                               if isinstance(value, list) else json.dumps(value)) for key, value in golden.items())
            (OUT / f"{name}.json").write_text("{" + lines + "}\n")
