"""Makes tests/goldens/bloom: tiny BLOOM models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

LINEARS = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
# The greedy text of a tiny random model that ties its output head repeats one token, unless the blocks' outputs outweigh
# the embedding.
GAINS = dict(query_key_value=2.0, dense=3.0, dense_h_to_4h=1.5, dense_4h_to_h=3.0)
BASE = dict(n_layer=3, seq_length=256, bos_token_id=None, eos_token_id=None, pad_token_id=None)
VARIANTS = {
    # Six heads: the slopes of the last two are between those of the first four.
    "bloom": dict(
        dtype="float32", old_config=False,
        config=transformers.BloomConfig(**BASE, hidden_size=48, n_head=6, vocab_size=23),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(word_embeddings=0.45), bias=0.1),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.BloomForCausalLM, targets=LINEARS)

if __name__ == "__main__":
    hashed_goldens.make("bloom", 20261109, VARIANTS)
