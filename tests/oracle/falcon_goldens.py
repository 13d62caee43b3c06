"""Makes tests/goldens/falcon: tiny Falcon models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

GAINS = dict(query_key_value=1.3, dense=1.0, dense_h_to_4h=1.2, dense_4h_to_h=1.5, lm_head=3.0)
# The output head is not tied: the greedy text of a tiny random model that ties it repeats one token.
BASE = dict(num_hidden_layers=3, tie_word_embeddings=False, max_position_embeddings=256, bos_token_id=None,
            eos_token_id=None, pad_token_id=None)
# The eager attention of transformers 5 adds ALiBi twice: as itself and with the mask. Slopes and positions are rounded to
# bfloat16 there, which is exact for at most eight heads if their number is a power of two, and for 256 positions.
ALIBI_ATTENTION = "sdpa"


def rules(bias=0.3, **gains):
    return hashed_goldens.Rules(gains={**GAINS, **gains}, tables=dict(word_embeddings=1.0), bias=bias)


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
    # falcon-rw: ALiBi, blocks one after the other, a KV head for each query head, biases. With little attention and large
    # biases its greedy text repeats one token.
    "falcon_rw": dict(
        dtype="bfloat16", old_config=False, attention=ALIBI_ATTENTION,
        config=transformers.FalconConfig(**BASE, hidden_size=40, num_attention_heads=4, vocab_size=23, alibi=True,
                                         parallel_attn=False, multi_query=False, bias=True),
        rules=rules(bias=0.1, query_key_value=1.8, dense=1.5),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # ALiBi in 7b's form.
    "falcon_alibi": dict(
        dtype="float16", old_config=False, attention=ALIBI_ATTENTION,
        config=transformers.FalconConfig(**BASE, hidden_size=48, num_attention_heads=8, vocab_size=22, alibi=True),
        adapters=["dora_r4_f16", "lora_r8_f32"]),
}
for variant in VARIANTS.values():
    variant.setdefault("rules", rules())
    variant.update(model=transformers.FalconForCausalLM, targets=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"])

if __name__ == "__main__":
    hashed_goldens.make("falcon", 20261107, VARIANTS)
