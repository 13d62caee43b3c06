"""Makes tests/goldens/olmo2: tiny OLMo 2 models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

RULES = dict(gains=dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5,
                        lm_head=3.0))
VARIANTS = {
    # Three query heads per KV head.
    "olmo2": dict(
        dtype="bfloat16", old_config=True,
        config=transformers.Olmo2Config(**llama.BASE, hidden_size=42, num_attention_heads=6, num_key_value_heads=2,
                                        head_dim=10, intermediate_size=54, vocab_size=23, rms_norm_eps=1e-6),
        rules=hashed_goldens.Rules(**RULES, tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # One KV head, which ranks repeat, and a bias in every linear of attention.
    "olmo2_bias": dict(
        dtype="float32", old_config=False,
        config=transformers.Olmo2Config(**llama.BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=1,
                                        intermediate_size=50, vocab_size=22, attention_bias=True),
        rules=hashed_goldens.Rules(**RULES, tables=dict(embed_tokens=1.0)),
        adapters=["dora_r4_bf16", "lora_r8_f32"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Olmo2ForCausalLM, targets=llama.ALL)

if __name__ == "__main__":
    hashed_goldens.make("olmo2", 20261123, VARIANTS)
