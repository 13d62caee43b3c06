"""Makes tests/goldens/ministral3: a tiny Ministral 3 and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

VARIANTS = {
    # Prompts are longer than the original length, beyond which queries grow in steps. Three query heads per KV head,
    # attention wider than the hidden size.
    "ministral3": dict(
        dtype="bfloat16", old_config=False,
        config=transformers.Ministral3Config(**llama.BASE, hidden_size=42, num_attention_heads=6, num_key_value_heads=2,
                                             head_dim=10, intermediate_size=54, vocab_size=15,
                                             rope_parameters=dict(type="yarn", rope_theta=1000.0, factor=8.0,
                                                                  original_max_position_embeddings=32,
                                                                  max_position_embeddings=256, beta_fast=8.0,
                                                                  beta_slow=0.5, mscale=1.0, mscale_all_dim=0.4,
                                                                  llama_4_scaling_beta=0.3)),
        # Scores are multiplied by up to 1.9, so smaller queries and keys give them the usual deviation.
        rules=hashed_goldens.Rules(gains=dict(q_proj=1.1, k_proj=1.1, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2,
                                              down_proj=1.5, lm_head=3.0),
                                   tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Ministral3ForCausalLM, targets=llama.ALL)

if __name__ == "__main__":
    hashed_goldens.make("ministral3", 20261128, VARIANTS)
