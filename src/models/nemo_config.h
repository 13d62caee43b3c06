// NeMo's Megatron GPT models as architectures of this program: what model_config.yaml says becomes a ModelConfig.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "checkpoint/config.h"

namespace chorus {

struct NemoModelConfig {
  ModelConfig config;           // without dtype, vocabulary and mapping; not finalised
  bool norms_from_one = false;  // layernorm1p: norms are stored as their difference from 1
  int64_t vocabulary = 0;       // override_vocab_size; 0: none
  // Whether prompts begin with the tokenizer's begin token. NeMo leaves it to each request; Llama is trained with it,
  // and NeMo's own GPT models without it.
  bool begins_with_bos = false;
};

// Models with Llama's structure become LlamaForCausalLM, with experts MixtralForCausalLM; all others GPTForCausalLM
// (models/gpt.h). Throws Error that
// names the field: kInvalidArgument for a value that is out of range, kUnsupported for one that needs what Chorus does
// not have.
NemoModelConfig readNemoModelConfig(const Json& config, std::string_view source);

}  // namespace chorus
