"""Makes tests/goldens/mixtral: tiny Mixtrals and adapters; see hashed_goldens.py."""

import transformers

import experts
import hashed_goldens
import llama_goldens as llama

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
RULES = dict(gains=dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate=1.0, w1=1.2, w3=1.2, w2=0.4,
                        gate_up_proj=1.2, down_proj=0.4, lm_head=3.0), tables=dict(embed_tokens=1.0))
BASE = dict(**llama.BASE, num_experts_per_tok=2)


def separate(model):
    experts.separate(model, ("w1", "w3", "w2"), "block_sparse_moe")


VARIANTS = {
    # The experts as separate linears, as transformers 4 has them and nearly all files.
    "mixtral": dict(
        dtype="bfloat16", old_config=True, steady=True, prepare=separate, targets=[*ATTENTION, "gate", "w1", "w2", "w3"],
        config=transformers.MixtralConfig(**BASE, hidden_size=42, num_attention_heads=6, num_key_value_heads=2, head_dim=10,
                                          num_local_experts=4, intermediate_size=38, vocab_size=23, rms_norm_eps=1e-5),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # The experts as stacked parameters, in the model's file and in the adapters, and a window.
    "mixtral_stacked": dict(
        dtype="float32", old_config=False, prepare=experts.hide_type, original_format=False, targets=ATTENTION,
        peft=dict(target_parameters=["mlp.gate.weight", "experts.gate_up_proj", "experts.down_proj"]),
        config=transformers.MixtralConfig(**BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=1,
                                          num_local_experts=5, intermediate_size=30, vocab_size=22, head_dim=12,
                                          sliding_window=24, rms_norm_eps=1e-6),
        adapters=["lora_r8_f32", "rslora_r5_f16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.MixtralForCausalLM, rules=hashed_goldens.Rules(**RULES), top_k=2,
                   round_weights=experts.rounded_by(variant["prepare"]))

if __name__ == "__main__":
    hashed_goldens.make("mixtral", 20261123, VARIANTS)
