// What a model's own files say about generation: end tokens and default sampling.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "server/model/text_codec.h"

namespace chorus::server {

struct GenerationDefaults {
  double temperature = 1.0;  // OpenAI's; 0 is greedy
  double topP = 1.0;
  int32_t topK = 0;  // 0: all
  double minP = 0.0;
  double repetitionPenalty = 1.0;
  int32_t noRepeatNgramSize = 0;  // 0: off
  int32_t minTokens = 0;
  std::vector<std::vector<int32_t>> badWords;  // none is empty; tokens that are suppressed are words of one
  std::vector<int32_t> endIds;                 // any of them ends an answer; without duplicates
};

// Reads generation_config.json, or config.json where the first has no eos_token_id, and adds the tokenizer's end
// token. "do_sample": false makes greedy the default. Settings that would change answers and are not applied are
// warned about. Missing files are no fault; malformed ones throw Error.
GenerationDefaults readGenerationDefaults(const std::filesystem::path& directory, const TextCodec& text);

}  // namespace chorus::server
