"""Makes tests/goldens/starcoder: tiny models of StarCoder 1 and 2 and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

GAINS = dict(c_attn=1.3, c_proj=1.3, c_fc=1.2, lm_head=3.0)
# The output head is not tied: the greedy text of a tiny random model that ties it repeats one token.
BASE = dict(tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
VARIANTS = {
    # One KV head, as in StarCoder.
    "starcoder": dict(
        dtype="float32", old_config=False, model=transformers.GPTBigCodeForCausalLM,
        config=transformers.GPTBigCodeConfig(**BASE, n_layer=3, n_positions=256, n_embd=44, n_head=4, vocab_size=19),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # A KV head for each query head; the fused source is then ordered by head. Its own MLP size and activation.
    "starcoder_heads": dict(
        dtype="bfloat16", old_config=False, model=transformers.GPTBigCodeForCausalLM,
        config=transformers.GPTBigCodeConfig(**BASE, n_layer=3, n_positions=256, n_embd=42, n_head=6, n_inner=50,
                                             vocab_size=18, multi_query=False, activation_function="gelu",
                                             layer_norm_epsilon=1e-4),
        adapters=["dora_r4_f16", "lora_r8_bf16"]),
    # StarCoder 2: three query heads per KV head, a window that is shorter than most prompts.
    "starcoder2": dict(
        dtype="float16", old_config=True, model=transformers.Starcoder2ForCausalLM,
        config=transformers.Starcoder2Config(**BASE, num_hidden_layers=3, max_position_embeddings=256, hidden_size=60,
                                             num_attention_heads=6, num_key_value_heads=2, intermediate_size=50,
                                             vocab_size=19, sliding_window=20,
                                             rope_parameters=dict(rope_type="default", rope_theta=5000.0)),
        rules=hashed_goldens.Rules(gains=dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, c_fc=1.2, c_proj=1.5,
                                              lm_head=3.0), tables=dict(embed_tokens=1.0)),
        targets=["q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj"],
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
}
for variant in VARIANTS.values():
    variant.setdefault("rules", hashed_goldens.Rules(gains=GAINS, tables=dict(wte=1.0, wpe=0.7)))
    variant.setdefault("targets", ["c_attn", "c_proj", "c_fc"])

if __name__ == "__main__":
    hashed_goldens.make("starcoder", 20261133, VARIANTS)
