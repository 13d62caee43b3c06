"""Makes tests/goldens/falcon: tiny Falcon models with parallel blocks and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

GAINS = dict(query_key_value=1.3, dense=1.0, dense_h_to_4h=1.2, dense_4h_to_h=1.5, lm_head=3.0)
# The output head is not tied: the greedy text of a tiny random model that ties it repeats one token.
BASE = dict(num_hidden_layers=3, tie_word_embeddings=False, max_position_embeddings=256, bos_token_id=None,
            eos_token_id=None, pad_token_id=None)
VARIANTS = {
    # 7b: one KV head, one norm for both blocks.
    "falcon_7b": dict(
        dtype="bfloat16", old_config=True,
        config=transformers.FalconConfig(**BASE, hidden_size=48, num_attention_heads=4, vocab_size=23),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # 40b: the new decoder architecture, with a norm for each block and three query heads per KV head.
    "falcon_40b": dict(
        dtype="float32", old_config=False,
        config=transformers.FalconConfig(**BASE, hidden_size=48, num_attention_heads=6, num_kv_heads=2, vocab_size=22,
                                         new_decoder_architecture=True, ffn_hidden_size=50),
        adapters=["dora_r4_f16", "lora_r8_f32"]),
    # Falcon 2's: the new decoder architecture with one norm; and biases.
    "falcon_2": dict(
        dtype="float16", old_config=False,
        config=transformers.FalconConfig(**BASE, hidden_size=40, num_attention_heads=4, num_kv_heads=2, vocab_size=22,
                                         new_decoder_architecture=True, num_ln_in_parallel_attn=1, bias=True),
        adapters=["lora_r8_f16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.FalconForCausalLM, rules=hashed_goldens.Rules(gains=GAINS, tables=dict(word_embeddings=1.0)),
                   targets=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"])

if __name__ == "__main__":
    hashed_goldens.make("falcon", 20261107, VARIANTS)
