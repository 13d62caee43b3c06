// Generation settings from a model's own files: end tokens and default sampling.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace chorus {

struct GenerationDefaults {
  double temperature = 1.0;  // OpenAI's default; 0 is greedy
  double top_p = 1.0;
  int32_t top_k = 0;  // 0: all
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  int32_t no_repeat_ngram_size = 0;  // 0: off
  int32_t min_tokens = 0;
  std::vector<std::vector<int32_t>> bad_words;  // none is empty; a suppressed token is a word of one token
  std::vector<int32_t> end_ids;                 // any of them ends an answer; without duplicates
};

// Reads generation_config.json, takes eos_token_id from config.json if the former has none, and adds end_token, the
// tokenizer's own end token. "do_sample": false makes greedy the default. Settings that would change answers but are
// not applied are logged as warnings. Files may be missing; malformed ones throw Error.
GenerationDefaults readGenerationDefaults(const std::filesystem::path& directory, std::optional<int32_t> end_token);

}  // namespace chorus
