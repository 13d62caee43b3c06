"""Makes tests/goldens/granite_moe: tiny Granite models with experts, and adapters; see hashed_goldens.py."""

import torch
import transformers

import experts
import hashed_goldens
import llama_goldens as llama

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
# The gain of the head makes up for logits_scaling.
GAINS = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, layer=1.0, input_linear=1.2, output_linear=0.5, lm_head=9.0)


class StackedLinear(torch.nn.Module):
    """The linears of all experts, with one parameter."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone())

    def forward(self, x, expert):
        return torch.nn.functional.linear(x, self.weight[expert])


class Experts4(torch.nn.Module):
    """A mixture of experts with the modules of transformers 4."""

    def __init__(self, mixture):
        super().__init__()
        self.top_k = mixture.router.top_k
        weight = mixture.router.weight
        self.router = torch.nn.Module()
        self.router.layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        self.router.layer.weight = torch.nn.Parameter(weight.detach().clone())
        self.input_linear = StackedLinear(mixture.experts.gate_up_proj)
        self.output_linear = StackedLinear(mixture.experts.down_proj)

    def forward(self, hidden_states):
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        weights, chosen = self.router.layer(x).float().topk(self.top_k, dim=-1)
        weights = weights.softmax(-1)
        out = torch.zeros_like(x)
        for expert in range(self.router.layer.weight.shape[0]):
            row, place = torch.where(chosen == expert)
            activated, other = self.input_linear(x[row], expert).chunk(2, dim=-1)
            y = self.output_linear(torch.nn.functional.silu(activated) * other, expert)
            out.index_add_(0, row, y * weights[row, place, None])
        return out.reshape(hidden_states.shape)


def as_in_transformers_4(model):
    experts.hide_type(model)
    for layer in model.model.layers:
        layer.block_sparse_moe = Experts4(layer.block_sparse_moe)


VARIANTS = {
    # One KV head; adapters of router and experts name the parameters of transformers 5.
    "granite_moe": dict(
        dtype="bfloat16", old_config=False, prepare=experts.hide_type, model=transformers.GraniteMoeForCausalLM,
        targets=ATTENTION, peft=dict(target_parameters=["router.weight", "experts.gate_up_proj", "experts.down_proj"]),
        config=transformers.GraniteMoeConfig(**llama.BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=1,
                                             intermediate_size=30, vocab_size=15, num_local_experts=4,
                                             num_experts_per_tok=2, embedding_multiplier=6.5,
                                             attention_multiplier=0.21, residual_multiplier=0.6, logits_scaling=3.0),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.2)),
        adapters=["lora_r8_f32", "rslora_r5_bf16"]),
    # A shared expert, biases, three query heads per KV head; adapters name the modules of transformers 4,
    # and one of them its parameters of all experts.
    "granite_moe_shared": dict(
        dtype="float16", old_config=True, prepare=as_in_transformers_4, model=transformers.GraniteMoeSharedForCausalLM,
        targets=[*ATTENTION, "layer", "shared_mlp.input_linear", "shared_mlp.output_linear"],
        peft_of=dict(lora_r8_f16=dict(target_parameters=["block_sparse_moe.input_linear.weight",
                                                         "block_sparse_moe.output_linear.weight"])),
        config=transformers.GraniteMoeSharedConfig(**llama.BASE, hidden_size=42, num_attention_heads=6,
                                                   num_key_value_heads=2, head_dim=10, intermediate_size=26,
                                                   shared_intermediate_size=34, vocab_size=15, num_local_experts=5,
                                                   num_experts_per_tok=2, attention_bias=True, embedding_multiplier=6.5,
                                                   attention_multiplier=0.21, residual_multiplier=0.6,
                                                   logits_scaling=3.0),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.2)),
        adapters=["lora_r8_f16", "dora_r4_f32"]),
}
for variant in VARIANTS.values():
    variant.update(top_k=2, round_weights=experts.rounded_by(variant["prepare"]))

if __name__ == "__main__":
    hashed_goldens.make("granite_moe", 20261129, VARIANTS)
