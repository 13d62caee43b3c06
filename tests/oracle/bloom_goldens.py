"""Makes tests/goldens/bloom: tiny BLOOM models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

LINEARS = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
# The greedy text of a tiny random model that ties its output head repeats one token, unless the blocks' outputs outweigh
# the embedding.
GAINS = dict(query_key_value=2.0, dense=3.0, dense_h_to_4h=1.5, dense_4h_to_h=3.0)
BASE = dict(n_layer=3, seq_length=256, bos_token_id=None, eos_token_id=None, pad_token_id=None)
VARIANTS = {
    # Six heads: the slopes of the last two are not powers of the first one.
    "bloom": dict(
        dtype="float32", old_config=False,
        config=transformers.BloomConfig(**BASE, hidden_size=48, n_head=6, vocab_size=23),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(word_embeddings=0.45), bias=0.1),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # Each adapter also has its own norm after the embedding. Queries and keys are smaller here, because with the other
    # variant's gains the rounding of a 16-bit cache changes the attention weights by more than the tolerance allows.
    "bloom_norm": dict(
        dtype="bfloat16", old_config=False,
        config=transformers.BloomConfig(**BASE, hidden_size=44, n_head=4, vocab_size=19, layer_norm_epsilon=1e-4),
        rules=hashed_goldens.Rules(gains=dict(query_key_value=1.3, dense=4.0, dense_h_to_4h=2.0, dense_4h_to_h=5.0),
                                   tables=dict(word_embeddings=0.45), bias=0.05),
        adapters=["dora_r4_f16", "lora_r8_f32"],
        peft=dict(modules_to_save=["word_embeddings_layernorm"])),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.BloomForCausalLM, targets=LINEARS)

if __name__ == "__main__":
    hashed_goldens.make("bloom", 20261109, VARIANTS)
