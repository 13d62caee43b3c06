"""Makes tests/goldens/cohere: tiny Cohere and Cohere 2 models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

# The gain of the head, or of the tied embedding, makes up for logit_scale.
GAINS = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5, lm_head=12.0)
VARIANTS = {
    # Every other layer has a window and RoPE, in the form of transformers 4; three query heads per KV head, biases in all
    # linears of attention.
    "cohere2": dict(
        dtype="bfloat16", old_config=True, without=["layer_types"],
        keys=dict(sliding_window_pattern=2, cache_implementation="hybrid", position_embedding_type="rope_gptj"),
        model=transformers.Cohere2ForCausalLM,
        config=transformers.Cohere2Config(**llama.BASE, hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                                          intermediate_size=54, vocab_size=15, sliding_window=20, logit_scale=0.25,
                                          layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                          attention_bias=True, tie_word_embeddings=False),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=1.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # Command R: RoPE in all layers, tied embeddings, a KV head for each query head.
    "cohere": dict(
        dtype="float32", old_config=False, model=transformers.CohereForCausalLM,
        config=transformers.CohereConfig(**llama.BASE, hidden_size=40, num_attention_heads=4, intermediate_size=50,
                                         vocab_size=22, logit_scale=1.5, layer_norm_eps=1e-6),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.3)),
        adapters=["dora_r4_bf16", "lora_r8_f32"]),
}
for variant in VARIANTS.values():
    variant.update(targets=llama.ALL)

if __name__ == "__main__":
    hashed_goldens.make("cohere", 20261126, VARIANTS)
