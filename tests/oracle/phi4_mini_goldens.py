"""Makes tests/goldens/phi4_mini: tiny Phi-3 models with longrope, and adapters; see hashed_goldens.py."""

import transformers

import hashed_goldens
import llama_goldens as llama
from phi3_goldens import GAINS

# Three quarters of a head's 12 elements are rotated, rounded down to an even number.
PAIRS = 4
SHORT = [1.0, 1.05, 1.2, 1.5]
LONG = [1.1, 1.9, 3.4, 7.5]
assert len(SHORT) == len(LONG) == PAIRS


def config(original, **longrope):
    return transformers.Phi3Config(**llama.BASE, hidden_size=72, num_attention_heads=6, num_key_value_heads=2,
                                   intermediate_size=50, vocab_size=14, rms_norm_eps=1e-5, tie_word_embeddings=True,
                                   original_max_position_embeddings=original,
                                   rope_parameters=dict(rope_type="longrope", rope_theta=100.0,
                                                        partial_rotary_factor=0.67, short_factor=SHORT,
                                                        long_factor=LONG, **longrope))


def always_long(model, dtype):
    """Rounds the weights, and makes the model rotate short sequences by the long factors too, as an engine does whose
    sequences may be longer than the original ones.
    """
    llama.round_parameters(model, dtype)
    rope = model.model.rotary_emb
    frequencies = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["longrope"]
    rope.original_inv_freq, _ = frequencies(model.config, seq_len=model.config.original_max_position_embeddings + 1)


VARIANTS = {
    # No sequence is longer than the original ones. The factor gives cos and sin a factor too.
    "phi4_mini_short": dict(dtype="float16", old_config=False, config=config(256, factor=4.0),
                            adapters=["lora_r8_bf16", "rslora_r5_f16"]),
    # The factor follows from both lengths.
    "phi4_mini_long": dict(dtype="bfloat16", old_config=True, config=config(64), round_weights=always_long,
                           adapters=["dora_r4_f32", "lora_r8_f32"]),
}
for variant in VARIANTS.values():
    variant.update(model=transformers.Phi3ForCausalLM, targets=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
                   rules=hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=0.35)))

if __name__ == "__main__":
    hashed_goldens.make("phi4_mini", 20261127, VARIANTS)
