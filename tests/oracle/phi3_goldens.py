"""Makes tests/goldens/phi3: tiny Phi-3 models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

GAINS = dict(qkv_proj=1.0, o_proj=1.2, gate_up_proj=1.2, down_proj=1.5, lm_head=3.0)
VARIANTS = {
    # Three query heads per KV head, and a window that every position sees.
    "phi3": dict(
        dtype="float16", old_config=True,
        config=transformers.Phi3Config(**llama.BASE, hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                                       intermediate_size=54, vocab_size=23, rms_norm_eps=1e-5, sliding_window=256),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_bf16", "dora_r4_f32", "rslora_r5_f16"]),
    # RoPE on three quarters of a head, tied embeddings.
    "phi3_partial": dict(
        dtype="bfloat16", old_config=False,
        config=transformers.Phi3Config(**llama.BASE, hidden_size=48, num_attention_heads=4, num_key_value_heads=4,
                                       intermediate_size=50, vocab_size=22, rms_norm_eps=1e-5,
                                       tie_word_embeddings=True,
                                       rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                                            partial_rotary_factor=0.67)),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.4)),
        adapters=["dora_r4_bf16", "lora_r8_f32"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Phi3ForCausalLM,
                   targets=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])

if __name__ == "__main__":
    hashed_goldens.make("phi3", 20261103, VARIANTS)
