"""Makes tests/goldens/gemma: a tiny Gemma 1 and its adapters; see hashed_goldens.py."""

import transformers

import gemma2_goldens as gemma2
import hashed_goldens
import llama_goldens as llama

VARIANTS = {
    # One KV head as in gemma-2b, attention wider than the hidden size, tied embeddings.
    "gemma": dict(
        dtype="float32", old_config=True, model=transformers.GemmaForCausalLM, targets=llama.ALL,
        round_weights=gemma2.round_weights,
        config=transformers.GemmaConfig(**llama.BASE, hidden_size=36, num_attention_heads=3, num_key_value_heads=1,
                                        head_dim=14, intermediate_size=58, vocab_size=21,
                                        rms_norm_eps=1e-5, tie_word_embeddings=True),
        rules=hashed_goldens.Rules(gains=gemma2.GAINS, tables=dict(embed_tokens=0.07), norm=0.0, norms=dict(norm=6.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # A KV head for each query head as in gemma-7b, biases, and a factor of the embedding that 16 bits round.
    "gemma_bf16": dict(
        dtype="bfloat16", old_config=False, model=transformers.GemmaForCausalLM, targets=llama.ALL, steady=True,
        round_weights=gemma2.round_weights,
        config=transformers.GemmaConfig(**llama.BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=4,
                                        head_dim=14, intermediate_size=50, vocab_size=23, attention_bias=True,
                                        tie_word_embeddings=True),
        rules=hashed_goldens.Rules(gains=gemma2.GAINS, tables=dict(embed_tokens=0.07), bias=0.1, norm=0.0, norms=dict(norm=6.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
}

if __name__ == "__main__":
    hashed_goldens.make("gemma", 20261125, VARIANTS)
