"""Makes tests/goldens/gemma2: tiny Gemma 2 models and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama

GAINS = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5)


def round_weights(model, dtype):
    """Rounds what a checkpoint has: the weights of norms plus one. transformers rounds the embedding's factor as well."""
    for name, parameter in model.named_parameters():
        added = 1 if "norm" in name.split(".")[-2] else 0
        parameter.copy_((parameter + added).to(dtype).float() - added)
    scale = model.model.embed_tokens.embed_scale
    scale.copy_(scale.to(dtype))


# A tied head repeats the last token unless the embedding is small beside the outputs of the blocks, which come from norms.
# The final norm makes up for the small embedding.
TIED_NORMS = dict(post_attention_layernorm=1.0, post_feedforward_layernorm=1.0, norm=6.0)
# Windows are shorter than most prompts, and scores and logits reach the soft caps.
VARIANTS = {
    # Three query heads per KV head and attention wider than the hidden size, in the form of transformers 4: every other
    # layer has the window.
    "gemma2": dict(
        dtype="bfloat16", old_config=True, without=["layer_types"],
        config=transformers.Gemma2Config(**llama.BASE, hidden_size=42, num_attention_heads=6, num_key_value_heads=2,
                                         head_dim=10, intermediate_size=54, vocab_size=23, query_pre_attn_scalar=7,
                                         sliding_window=20, attn_logit_softcapping=2.5, final_logit_softcapping=6.0,
                                         tie_word_embeddings=False),
        rules=hashed_goldens.Rules(gains=dict(GAINS, lm_head=4.0), tables=dict(embed_tokens=0.15), norm=0.0),
        adapters=["lora_r8_f16", "dora_r4_f32", "rslora_r5_bf16"]),
    # One KV head, tied embeddings, a bias in every linear of attention, the window in other layers.
    "gemma2_tied_bias": dict(
        dtype="float32", old_config=False,
        config=transformers.Gemma2Config(**llama.BASE, hidden_size=40, num_attention_heads=4, num_key_value_heads=1,
                                         head_dim=18, intermediate_size=50, vocab_size=22, query_pre_attn_scalar=12,
                                         sliding_window=33, attn_logit_softcapping=4.0, final_logit_softcapping=8.0,
                                         attention_bias=True, rms_norm_eps=1e-5,
                                         layer_types=["full_attention", "sliding_attention", "sliding_attention"]),
        rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.07), bias=0.1, norm=0.0, norms=TIED_NORMS),
        adapters=["dora_r4_bf16", "lora_r8_f32", "rslora_r5_f16"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Gemma2ForCausalLM, targets=llama.ALL, round_weights=round_weights)

if __name__ == "__main__":
    hashed_goldens.make("gemma2", 20261107, VARIANTS)
