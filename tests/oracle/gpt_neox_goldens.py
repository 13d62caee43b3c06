"""Makes tests/goldens/gpt_neox: tiny GPT-NeoX models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

GAINS = dict(query_key_value=1.3, dense=1.0, dense_h_to_4h=1.2, dense_4h_to_h=1.5, embed_out=3.0)
BASE = dict(num_hidden_layers=3, max_position_embeddings=256, bos_token_id=None, eos_token_id=None)
# The keys of a file that transformers 4 wrote.
OLD = dict(without=["rope_parameters", "dtype"],
           keys=dict(rotary_pct=0.25, rotary_emb_base=5000, torch_dtype="bfloat16"))
VARIANTS = {
    # Pythia's form: both blocks read the same residual, a quarter of each head is rotated.
    "gpt_neox": dict(
        dtype="bfloat16", old_config=False, **OLD,
        config=transformers.GPTNeoXConfig(**BASE, hidden_size=48, num_attention_heads=6, intermediate_size=50,
                                          vocab_size=19,
                                          rope_parameters=dict(rope_type="default", rope_theta=5000.0,
                                                               partial_rotary_factor=0.25)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # Blocks one after the other, no biases in attention, whole heads rotated, RoPE scaling, and the output head under
    # the name that transformers 5 has in memory.
    "gpt_neox_serial": dict(
        dtype="float32", old_config=False, original_format=False,
        config=transformers.GPTNeoXConfig(**BASE, hidden_size=40, num_attention_heads=4, intermediate_size=46,
                                          vocab_size=18,
                                          use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new",
                                          rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0,
                                                               partial_rotary_factor=1.0)),
        adapters=["dora_r4_f16", "lora_r8_f32"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.GPTNeoXForCausalLM,
                   rules=hashed_goldens.Rules(gains={**GAINS, "lm_head": 3.0}, tables=dict(embed_in=1.0)),
                   targets=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"])

if __name__ == "__main__":
    hashed_goldens.make("gpt_neox", 20261132, VARIANTS)
