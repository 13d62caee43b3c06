"""Makes tests/goldens/config_defaults/configs.json: configs in which transformers' classes wrote out every key.

Run by hand, never by the build or the tests:
  python3 tests/oracle/config_defaults.py tests/goldens/config_defaults/configs.json
Needs transformers; the file has the version used.

src/models/config_defaults_test.cc leaves out one key after the other, except those that were `given` to the class: a
reader must then take the value that the class gave the key. The sizes differ from the defaults of the classes, so that a value which a class derives from another one
(num_key_value_heads from num_attention_heads) differs from a constant.
"""

import json
import pathlib
import sys

import transformers

SIZES = {"hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 3}
# More layers than max_window_layers, so that some of them have a window.
WINDOW = {"use_sliding_window": True, "num_hidden_layers": 30}
QWEN2_VL_WINDOW = {"use_sliding_window": True, "num_hidden_layers": 82}

# The class of an architecture's config, and the values of each config beside SIZES.
CLASSES = {
    "BloomForCausalLM": ("BloomConfig", [{}]),
    "CohereForCausalLM": ("CohereConfig", [{}]),
    "Cohere2ForCausalLM": ("Cohere2Config", [{}, {"num_hidden_layers": 9}]),
    "FalconForCausalLM": ("FalconConfig", [{}, {"new_decoder_architecture": True}, {"alibi": True}]),
    "GPT2LMHeadModel": ("GPT2Config", [{}]),
    "GPTBigCodeForCausalLM": ("GPTBigCodeConfig", [{}, {"multi_query": False}]),
    "GPTJForCausalLM": ("GPTJConfig", [{}]),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", [{}]),
    "GemmaForCausalLM": ("GemmaConfig", [{}]),
    "Gemma2ForCausalLM": ("Gemma2Config", [{}]),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", [{}, {"num_hidden_layers": 13}]),
    "GraniteForCausalLM": ("GraniteConfig", [{}]),
    "GraniteMoeForCausalLM": ("GraniteMoeConfig", [{}]),
    "GraniteMoeSharedForCausalLM": ("GraniteMoeSharedConfig", [{}, {"shared_intermediate_size": 512}]),
    "LlamaForCausalLM": ("LlamaConfig", [{}]),
    "Ministral3ForCausalLM": ("Ministral3Config", [{}]),
    "MistralForCausalLM": ("MistralConfig", [{}]),
    "MixtralForCausalLM": ("MixtralConfig", [{}]),
    "OPTForCausalLM": ("OPTConfig", [{"word_embed_proj_dim": 8192}]),
    "Olmo2ForCausalLM": ("Olmo2Config", [{}]),
    "Phi3ForCausalLM": ("Phi3Config", [{}]),
    "Qwen2ForCausalLM": ("Qwen2Config", [{}, WINDOW]),
    "Qwen2MoeForCausalLM": ("Qwen2MoeConfig", [{}, WINDOW]),
    "Qwen3ForCausalLM": ("Qwen3Config", [{}, WINDOW]),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", [{}, {"use_sliding_window": True}]),
    "SmolLM3ForCausalLM": ("SmolLM3Config", [{}, {"num_hidden_layers": 9}]),
    "Starcoder2ForCausalLM": ("Starcoder2Config", [{}]),
    "Gemma3ForConditionalGeneration": ("Gemma3TextConfig", [{}]),
    "Mistral3ForConditionalGeneration": ("MistralConfig", [{}]),
    "Qwen2VLForConditionalGeneration": ("Qwen2VLTextConfig", [{}, QWEN2_VL_WINDOW]),
    "Qwen2_5_VLForConditionalGeneration": ("Qwen2_5_VLTextConfig", [{}, QWEN2_VL_WINDOW]),
    "Qwen3VLForConditionalGeneration": ("Qwen3VLTextConfig", [{}]),
}
# Keys that change no weight and no logit.
DROPPED = {"_name_or_path", "architectures", "attention_dropout", "bos_token_id", "chunk_size_feed_forward", "dtype",
           "eos_token_id", "id2label", "initializer_range", "is_encoder_decoder", "label2id", "model_type",
           "output_attentions", "output_hidden_states", "pad_token_id", "problem_type", "return_dict",
           "transformers_version", "use_cache"}


def config_of(name, values):
    given = {**SIZES, **values}
    config = getattr(transformers, name)(**given).to_dict()
    return {"given": sorted(given), "config": {key: value for key, value in config.items() if key not in DROPPED}}


def main():
    configs = {}
    for architecture, (name, variants) in sorted(CLASSES.items()):
        configs[architecture] = [config_of(name, values) for values in variants]
        if architecture.endswith("ForConditionalGeneration"):
            for variant in configs[architecture]:
                variant["config"] = {"text_config": variant["config"]}
    lines = [f" {json.dumps(name)}: [\n  " + ",\n  ".join(json.dumps(c, sort_keys=True) for c in variants) + "]"
             for name, variants in configs.items()]
    version = json.dumps(transformers.__version__)
    text = f'{{"transformers": {version}, "configs": {{\n' + ",\n".join(lines) + "\n}}\n"
    pathlib.Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
