// The sampling flags of `chorus run`, with the names and defaults of TensorRT-LLM's run.py.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "chorus/request.h"
#include "text/text_codec.h"

namespace chorus {

struct RunSampling {
  int32_t num_beams = 1, top_k = 1, early_stopping = 1, no_repeat_ngram_size = 0, min_tokens = 0;
  float temperature = 1.0f, top_p = 0.0f, min_p = 0.0f;
  float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  float length_penalty = 1.0f, beam_search_diversity_rate = 0.0f;
  uint64_t random_seed = 0;
  std::vector<std::string> stop_words, bad_words;

  void addTo(CLI::App& command);
  // Sets the request's sampling config, stop words and bad words. `text` may be null without a tokenizer, but words
  // need one. Throws Error or std::invalid_argument that names the field.
  void apply(executor::Request& request, const TextCodec* text) const;
};

}  // namespace chorus
