"""Makes tests/goldens/qwen3: tiny Qwen3 models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

RULES = dict(gains=dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5,
                        lm_head=3.0))
VARIANTS = {
    # Three query heads per KV head, attention wider than the hidden size, and a window that is switched off, in the
    # form of transformers 4.
    "qwen3": dict(
        dtype="bfloat16", old_config=True, without=["layer_types"],
        keys=dict(use_sliding_window=False, sliding_window=None, max_window_layers=1),
        config=transformers.Qwen3Config(**llama.BASE, hidden_size=42, num_attention_heads=6, num_key_value_heads=2,
                                        head_dim=10, intermediate_size=54, vocab_size=23, rms_norm_eps=1e-6),
        rules=hashed_goldens.Rules(**RULES, tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # One KV head, tied embeddings, a bias in every linear of attention.
    "qwen3_tied_bias": dict(
        dtype="float32", old_config=False,
        config=transformers.Qwen3Config(**llama.BASE, hidden_size=36, num_attention_heads=4, num_key_value_heads=1,
                                        head_dim=18, intermediate_size=50, vocab_size=22, attention_bias=True,
                                        tie_word_embeddings=True, rms_norm_eps=1e-5),
        rules=hashed_goldens.Rules(**RULES, tables=dict(embed_tokens=0.5)),
        adapters=["dora_r4_bf16", "lora_r8_f32"]),
    # A window in all layers but the first, in the form of transformers 4.
    "qwen3_window": dict(
        dtype="float16", old_config=True, without=["layer_types"],
        config=transformers.Qwen3Config(**llama.BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=2,
                                        head_dim=14, intermediate_size=52, vocab_size=22, use_sliding_window=True,
                                        sliding_window=24, max_window_layers=1),
        rules=hashed_goldens.Rules(**RULES, tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_f32", "dora_r4_f16", "rslora_r5_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Qwen3ForCausalLM, targets=llama.ALL)

if __name__ == "__main__":
    hashed_goldens.make("qwen3", 20261101, VARIANTS)
