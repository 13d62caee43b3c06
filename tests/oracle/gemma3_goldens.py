"""Makes tests/goldens/gemma3: tiny Gemma 3 text models and adapters; see hashed_goldens.py."""

import transformers

import gemma2_goldens
import hashed_goldens
import llama_goldens as llama

# Windows are shorter than most prompts.
VARIANTS = {
    # Five layers with the window to one without, whose RoPE is scaled; one KV head, tied embeddings.
    "gemma3": dict(
        dtype="float16", old_config=False,
        config=transformers.Gemma3TextConfig(**{**llama.BASE, "num_hidden_layers": 7}, hidden_size=44,
                                             num_attention_heads=4, num_key_value_heads=1, head_dim=14,
                                             intermediate_size=50, vocab_size=22, query_pre_attn_scalar=6,
                                             sliding_window=20,
                                             rope_parameters=dict(
                                                 full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                                                 sliding_attention=dict(rope_type="default", rope_theta=1e4))),
        rules=hashed_goldens.Rules(gains=gemma2_goldens.GAINS, tables=dict(embed_tokens=0.07), norm=0.0,
                                   norms=gemma2_goldens.TIED_NORMS),
        adapters=["lora_r8_bf16", "dora_r4_f32", "rslora_r5_f16"]),
    # Every other layer has the window, in the form of transformers 4; two query heads per KV head, a bias in every linear
    # of attention, and a soft cap that logits reach.
    "gemma3_pattern_bias": dict(
        dtype="bfloat16", old_config=False, without=["layer_types", "rope_parameters", "dtype"],
        keys=dict(sliding_window_pattern=2, rope_theta=5000.0, rope_scaling=None, rope_local_base_freq=100.0,
                  torch_dtype="bfloat16", cache_implementation="hybrid"),
        config=transformers.Gemma3TextConfig(**llama.BASE, hidden_size=42, num_attention_heads=6, num_key_value_heads=3,
                                             head_dim=10, intermediate_size=54, vocab_size=23, query_pre_attn_scalar=5,
                                             sliding_window=33, final_logit_softcapping=6.0, attention_bias=True,
                                             tie_word_embeddings=False, rms_norm_eps=1e-5),
        rules=hashed_goldens.Rules(gains=dict(gemma2_goldens.GAINS, lm_head=4.0), tables=dict(embed_tokens=0.15),
                                   norm=0.0),
        adapters=["dora_r4_bf16", "lora_r8_f32", "rslora_r5_f16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Gemma3ForCausalLM, targets=llama.ALL,
                   round_weights=gemma2_goldens.round_weights)

if __name__ == "__main__":
    hashed_goldens.make("gemma3", 20261108, VARIANTS)
