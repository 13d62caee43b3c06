"""Makes tests/goldens/gptj: tiny GPT-J models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens

GAINS = dict(q_proj=1.8, k_proj=1.8, v_proj=1.2, out_proj=1.2, fc_in=1.5, fc_out=1.5, lm_head=3.0)
BASE = dict(n_layer=3, n_positions=256, bos_token_id=None, eos_token_id=None)
VARIANTS = {
    # Half of each head is rotated.
    "gptj": dict(
        dtype="float32", old_config=False,
        config=transformers.GPTJConfig(**BASE, n_embd=48, n_head=4, rotary_dim=6, vocab_size=19),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(wte=1.0)),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # Whole heads, an MLP size and an activation of its own, and an output head that is tied except for its bias. The
    # adapter replaces the head's weight and bias.
    "gptj_tied": dict(
        dtype="bfloat16", old_config=False,
        config=transformers.GPTJConfig(**BASE, n_embd=40, n_head=2, rotary_dim=20, n_inner=50, vocab_size=18,
                                       activation_function="silu", layer_norm_epsilon=1e-4, tie_word_embeddings=True),
        # A small embedding, so that the text does not repeat its tokens.
        rules=hashed_goldens.Rules(gains={**GAINS, "lm_head": 0.65}, tables=dict(wte=0.1), norms=dict(ln_f=4.5)),
        peft=dict(modules_to_save=["lm_head"]), adapters=["dora_r4_bf16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.GPTJForCausalLM,
                   targets=["q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out"])

if __name__ == "__main__":
    hashed_goldens.make("gptj", 20261131, VARIANTS)
