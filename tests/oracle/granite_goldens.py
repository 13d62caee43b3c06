"""Makes tests/goldens/granite: tiny Granite models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

GAINS = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5)
VARIANTS = {
    # Every multiplier, and biases in all linears. The gain of the head makes up for logits_scaling.
    "granite_bias": dict(
        dtype="float32", old_config=True,
        config=transformers.GraniteConfig(**llama.BASE, hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                                          intermediate_size=54, vocab_size=23, rms_norm_eps=1e-6, attention_bias=True,
                                          mlp_bias=True, embedding_multiplier=6.5, attention_multiplier=0.21,
                                          residual_multiplier=0.6, logits_scaling=3.0),
        rules=hashed_goldens.Rules(gains=dict(GAINS, lm_head=9.0), tables=dict(embed_tokens=0.2)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # Tied embeddings, no biases, one KV head.
    "granite_tied": dict(
        dtype="bfloat16", old_config=False,
        config=transformers.GraniteConfig(**llama.BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=1,
                                          intermediate_size=50, vocab_size=22, rms_norm_eps=1e-5,
                                          tie_word_embeddings=True, embedding_multiplier=0.6,
                                          attention_multiplier=0.3, residual_multiplier=0.9, logits_scaling=0.8),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.45)),
        adapters=["dora_r4_f16", "lora_r8_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.GraniteForCausalLM, targets=llama.ALL)

if __name__ == "__main__":
    hashed_goldens.make("granite", 20261102, VARIANTS)
