"""Makes tests/goldens/qwen3_moe: tiny Qwen3-MoE models and adapters; see hashed_goldens.py."""

import transformers

import experts
import hashed_goldens
import llama_goldens as llama
from qwen2_moe_goldens import ATTENTION, RULES, separate

VARIANTS = {
    # Every second layer has experts.
    "qwen3_moe": dict(
        dtype="bfloat16", old_config=True, prepare=separate, top_k=2,
        targets=[*ATTENTION, *llama.MLP, "gate"],
        config=transformers.Qwen3MoeConfig(**{**llama.BASE, "num_hidden_layers": 4}, hidden_size=42,
                                           num_attention_heads=6, num_key_value_heads=2, head_dim=10, num_experts=5,
                                           num_experts_per_tok=2, moe_intermediate_size=26, intermediate_size=46,
                                           vocab_size=23, decoder_sparse_step=2, norm_topk_prob=True,
                                           rms_norm_eps=1e-6),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # Tied embeddings, biases, a dense layer, one expert for each token; stacked parameters in the model's file and in the
    # adapters.
    "qwen3_moe_tied": dict(
        dtype="float32", old_config=False, prepare=experts.hide_type, original_format=False, top_k=1,
        targets=ATTENTION, peft=dict(target_parameters=["gate.weight", "experts.gate_up_proj", "experts.down_proj"]),
        config=transformers.Qwen3MoeConfig(**llama.BASE, hidden_size=44, num_attention_heads=4, num_key_value_heads=1,
                                           head_dim=18, num_experts=3, num_experts_per_tok=1, moe_intermediate_size=20,
                                           intermediate_size=40, vocab_size=22, attention_bias=True, mlp_only_layers=[0],
                                           tie_word_embeddings=True, rms_norm_eps=1e-5),
        tables=dict(embed_tokens=0.5), adapters=["lora_r8_f32", "rslora_r5_bf16"]),
}
for variant in VARIANTS.values():
    # Smaller experts than 1.5 would hide the adapters.
    rules = {"gains": {**RULES["gains"], "down_proj": 1.5}, "tables": variant.get("tables", RULES["tables"])}
    variant.update(model=transformers.Qwen3MoeForCausalLM, rules=hashed_goldens.Rules(**rules),
                   round_weights=experts.rounded_by(variant["prepare"]))

if __name__ == "__main__":
    hashed_goldens.make("qwen3_moe", 20261134, VARIANTS)
