"""Makes tests/goldens/qwen2_moe: tiny Qwen2-MoE models and adapters; see hashed_goldens.py."""

import transformers

import experts
import hashed_goldens
import llama_goldens as llama

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
RULES = dict(gains=dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate=1.0, gate_proj=1.2, up_proj=1.2,
                        gate_up_proj=1.2, down_proj=0.4, shared_expert_gate=1.0, lm_head=3.0),
             tables=dict(embed_tokens=1.0))


def separate(model):
    experts.separate(model, ("gate_proj", "up_proj", "down_proj"))


VARIANTS = {
    # All layers have experts. Every linear is adapted, in the shared expert too.
    "qwen2_moe": dict(
        dtype="float16", old_config=True, without=["layer_types"], prepare=separate, top_k=2,
        targets=[*ATTENTION, *llama.MLP, "gate", "shared_expert_gate"],
        config=transformers.Qwen2MoeConfig(**llama.BASE, hidden_size=60, num_attention_heads=6, num_key_value_heads=2,
                                           num_experts=4, num_experts_per_tok=2, moe_intermediate_size=26,
                                           shared_expert_intermediate_size=36, intermediate_size=50, vocab_size=23,
                                           rms_norm_eps=1e-6),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # A dense layer among others, weights that sum to 1, stacked parameters in the adapters.
    "qwen2_moe_dense_layer": dict(
        dtype="bfloat16", old_config=False, prepare=experts.hide_type, top_k=1,
        targets=[*ATTENTION, "shared_expert.up_proj", "shared_expert.down_proj", "shared_expert_gate"],
        peft=dict(target_parameters=["experts.down_proj", "experts.gate_up_proj"]),
        config=transformers.Qwen2MoeConfig(**llama.BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=2,
                                           num_experts=3, num_experts_per_tok=1, moe_intermediate_size=34,
                                           shared_expert_intermediate_size=22, intermediate_size=44, vocab_size=22,
                                           mlp_only_layers=[1], norm_topk_prob=True, rms_norm_eps=1e-5),
        adapters=["lora_r8_f32", "rslora_r5_f16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Qwen2MoeForCausalLM, rules=hashed_goldens.Rules(**RULES),
                   round_weights=experts.rounded_by(variant["prepare"]))

if __name__ == "__main__":
    hashed_goldens.make("qwen2_moe", 20261124, VARIANTS)
