"""Makes tests/goldens/smollm3: tiny SmolLM3 models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

GAINS = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5, lm_head=3.0)
BASE = {**llama.BASE, "num_hidden_layers": 4}
VARIANTS = {
    # Every third layer has no RoPE, which the others scale by YaRN; three query heads per KV head, biases in all linears.
    "smollm3": dict(
        dtype="bfloat16", old_config=True, without=["no_rope_layers", "layer_types"],
        config=transformers.SmolLM3Config(**BASE, hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                                          intermediate_size=54, vocab_size=15, rms_norm_eps=1e-5, attention_bias=True,
                                          mlp_bias=True, tie_word_embeddings=False, no_rope_layer_interval=3,
                                          rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                                               original_max_position_embeddings=64, beta_fast=4.0,
                                                               truncate=False)),
        # YaRN multiplies scores by 1.3.
        rules=hashed_goldens.Rules(gains=dict(GAINS, q_proj=1.2, k_proj=1.2), tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # The layers without RoPE have a window; one KV head, tied embeddings.
    "smollm3_window": dict(
        dtype="float16", old_config=False,
        config=transformers.SmolLM3Config(**BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=1,
                                          intermediate_size=50, vocab_size=14, no_rope_layers=[0, 1, 1, 0],
                                          use_sliding_window=True, sliding_window=20, head_dim=14),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.45)),
        adapters=["dora_r4_bf16", "lora_r8_f32"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.SmolLM3ForCausalLM, targets=llama.ALL)

if __name__ == "__main__":
    hashed_goldens.make("smollm3", 20261125, VARIANTS)
