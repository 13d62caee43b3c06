"""Makes tests/goldens/multimodal: tiny models of text and images and adapters; see hashed_goldens.py. Prompts are text."""

import transformers

import gemma2_goldens
import hashed_goldens

GAINS = dict(q_proj=1.5, k_proj=1.5, v_proj=1.2, o_proj=1.2, gate_proj=1.2, up_proj=1.2, down_proj=1.5, lm_head=3.0)
TEXT = dict(num_hidden_layers=3, max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=None,
            rms_norm_eps=1e-5)
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# The linears of the text model only.
OF_TEXT = rf".*language_model\..*\.({'|'.join(MODULES)})"
# Image encoders of one layer.
ENCODER = dict(hidden_size=8, intermediate_size=10, num_hidden_layers=1, num_attention_heads=1, image_size=28,
               patch_size=14)
QWEN_ENCODER = dict(depth=1, num_heads=1, patch_size=14)
SECTIONS = dict(rope_type="default", rope_theta=5000.0, mrope_section=[2, 3, 1])


def flat(config):
    """The config as early versions of transformers 4 wrote it: the text model's keys at the top level."""
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("model_type")
    text.pop("layer_types")
    config["torch_dtype"] = config.pop("dtype")
    return {**text, **config, "rope_theta": rope["rope_theta"],
            "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}


VARIANTS = {
    # Files with names below "language_model.", and adapters on both parts: their tensors for the image encoder are left
    # out.
    "gemma3_vision": dict(
        dtype="bfloat16", old_config=False, model=transformers.Gemma3ForConditionalGeneration,
        config=transformers.Gemma3Config(
            text_config={**TEXT, "hidden_size": 44, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 14,
                         "intermediate_size": 50, "vocab_size": 18, "query_pre_attn_scalar": 6, "sliding_window": 20,
                         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
            vision_config=dict(**ENCODER, vision_use_head=False), mm_tokens_per_image=4, bos_token_id=None,
            eos_token_id=None),
        rules=hashed_goldens.Rules(gains=gemma2_goldens.GAINS, tables=dict(embed_tokens=0.07), norm=0.0,
                                   norms=gemma2_goldens.TIED_NORMS),
        targets=MODULES, adapters=["lora_r8_f16", "dora_r4_f32"]),
    # The output head below "language_model." too.
    "mistral3": dict(
        dtype="float32", old_config=False, model=transformers.Mistral3ForConditionalGeneration,
        config=transformers.Mistral3Config(
            text_config=dict(model_type="mistral", **TEXT, hidden_size=42, num_attention_heads=6, num_key_value_heads=2,
                             head_dim=10, intermediate_size=50, vocab_size=19, sliding_window=None),
            vision_config=dict(model_type="pixtral", head_dim=8, **ENCODER), tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=None),
        targets=OF_TEXT, adapters=["lora_r8_f16", "rslora_r5_bf16"]),
    # The oldest files: a flat config, the text model's own names.
    "qwen2_vl": dict(
        dtype="float16", old_config=False, model=transformers.Qwen2VLForConditionalGeneration, rewrite=flat,
        config=transformers.Qwen2VLConfig(
            text_config=dict(**TEXT, hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=50,
                             vocab_size=18, rope_parameters=SECTIONS),
            vision_config=dict(**QWEN_ENCODER, embed_dim=8, hidden_size=48), bos_token_id=None, eos_token_id=None),
        targets=OF_TEXT, adapters=["lora_r8_bf16", "dora_r4_f32"]),
    # Today's names and config.
    "qwen2_5_vl": dict(
        dtype="bfloat16", old_config=False, original_format=False,
        model=transformers.Qwen2_5_VLForConditionalGeneration,
        config=transformers.Qwen2_5_VLConfig(
            text_config=dict(**TEXT, hidden_size=60, num_attention_heads=5, num_key_value_heads=1, intermediate_size=46,
                             vocab_size=19, rope_parameters=SECTIONS),
            vision_config=dict(**QWEN_ENCODER, hidden_size=8, intermediate_size=10, out_hidden_size=60),
            bos_token_id=None, eos_token_id=None),
        targets=OF_TEXT, adapters=["dora_r4_f16"]),
    # Interleaved sections.
    "qwen3_vl": dict(
        dtype="bfloat16", old_config=False, model=transformers.Qwen3VLForConditionalGeneration,
        config=transformers.Qwen3VLConfig(
            text_config=dict(**{k: v for k, v in TEXT.items() if k not in ("bos_token_id", "eos_token_id")},
                             hidden_size=42, num_attention_heads=6, num_key_value_heads=2, head_dim=12,
                             intermediate_size=50, vocab_size=18,
                             rope_parameters=dict(**SECTIONS, mrope_interleaved=True)),
            vision_config=dict(depth=1, num_heads=1, hidden_size=8, intermediate_size=10, out_hidden_size=42,
                               num_position_embeddings=16, deepstack_visual_indexes=[0])),
        targets=OF_TEXT, adapters=["lora_r8_f16", "rslora_r5_f32"]),
}
for variant in VARIANTS.values():
    variant.setdefault("rules", hashed_goldens.Rules(gains=GAINS, tables=dict(embed_tokens=1.0)))
    variant["load"] = variant["model"]

if __name__ == "__main__":
    hashed_goldens.make("multimodal", 20261134, VARIANTS)
