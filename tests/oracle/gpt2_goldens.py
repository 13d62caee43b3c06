"""Makes tests/goldens/gpt2: a tiny GPT-2 and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

CONV1D = ["c_attn", "c_proj", "c_fc"]
# The output head is not tied: the greedy text of a tiny random model that ties it repeats one token.
BASE = dict(n_layer=3, n_positions=256, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
RULES = hashed_goldens.Rules(gains=dict(c_attn=1.3, c_proj=1.3, c_fc=1.2, lm_head=3.0), tables=dict(wte=1.0, wpe=0.7),
                             transposed=CONV1D)
VARIANTS = {
    "gpt2": dict(
        dtype="float32", old_config=False,
        config=transformers.GPT2Config(**BASE, n_embd=44, n_head=4, vocab_size=23),
        rules=RULES,
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # A variant whose config sets the MLP size (n_inner) and another activation.
    "gpt2_mlp": dict(
        dtype="bfloat16", old_config=False,
        config=transformers.GPT2Config(**BASE, n_embd=42, n_head=6, n_inner=50, vocab_size=22, activation_function="silu",
                                       layer_norm_epsilon=1e-4),
        rules=RULES,
        adapters=["dora_r4_f16", "lora_r8_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.GPT2LMHeadModel, targets=CONV1D, peft=dict(fan_in_fan_out=True))

if __name__ == "__main__":
    hashed_goldens.make("gpt2", 20261105, VARIANTS)
