"""Makes tests/goldens/mistral: a tiny Mistral with a sliding window, and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

VARIANTS = {
    # Most prompts are longer than the window. Three query heads per KV head; config.json has the form of transformers 4.
    "mistral_window": dict(
        dtype="bfloat16", old_config=True,
        config=transformers.MistralConfig(**llama.BASE, hidden_size=42, num_attention_heads=6, num_key_value_heads=2,
                                          head_dim=10, intermediate_size=54, vocab_size=23, rms_norm_eps=1e-5,
                                          sliding_window=20),
        rules=hashed_goldens.Rules(gains=dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2,
                                              down_proj=1.5, lm_head=3.0),
                                   tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.MistralForCausalLM, targets=llama.ALL)

if __name__ == "__main__":
    hashed_goldens.make("mistral", 20261108, VARIANTS)
