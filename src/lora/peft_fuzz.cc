// Any bytes as an adapter directory are refused with an Error or give an adapter that fits the model. Input: two bytes
// of little-endian length, adapter_config.json of that length, adapter_model.safetensors. The highest bit of the length
// chooses a model with experts in its second layer.
// parses: src/lora/peft_reader.cc src/lora/adapted_modules.cc src/lora/adapter_builder.cc src/lora/adapter_values.cc
// src/lora/module_spellings.cc src/lora/peft_keys.cc src/lora/peft_replacements.cc
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "formats/safetensors.h"
#include "fuzz/fuzz_target.h"
#include "lora/peft_reader.h"
#include "lora/testing/test_model.h"

// A valid adapter is expanded to float matrices for every module of the test model, however short its file is: the most
// expensive one takes 1.1 ms and 90 KB.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 4000, .bytes = 256 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  static const chorus::TestModel dense;
  static const chorus::TestModel mixture = chorus::TestModel().withExperts();
  chorus::log::set_level(chorus::log::level::off);
  if (size < 2) return;
  const chorus::TestModel& model = (data[1] & 0x80) != 0 ? mixture : dense;
  const size_t length = std::min<size_t>(data[0] | (data[1] & 0x7f) << 8, size - 2);
  // Both buffers are exactly as long as their contents, so that a sanitizer sees a read past either end.
  const std::vector<char> config(data + 2, data + 2 + length);
  const std::vector<uint8_t> tensors(data + 2 + length, data + size);
  try {
    const auto weights = chorus::Safetensors::parse(std::as_bytes(std::span(tensors)), "w");
    const chorus::Adapter adapter =
        chorus::readPeftAdapter({config.data(), config.size()}, "c", weights, "fuzz", {model.config, model.table, 64});
    for (const chorus::AdapterModule& module : adapter.modules) {
      const bool outside = module.module_id == chorus::kTokenEmbedding || module.module_id == chorus::kOutputHead;
      if (outside != (module.layer == -1) || module.layer < -1 || module.layer >= model.config.num_hidden_layers) {
        std::abort();
      }
      if (module.rank < 1 || module.rank > 64 || module.a == nullptr || module.b == nullptr) std::abort();
      for (size_t i = 0; i < module.aBytes() / chorus::dtypeSize(module.dtype); ++i) {
        if (!std::isfinite(chorus::loadAsFloat(module.a, module.dtype, i))) std::abort();
      }
      for (size_t i = 0; i < module.bBytes() / chorus::dtypeSize(module.dtype); ++i) {
        if (!std::isfinite(chorus::loadAsFloat(module.b, module.dtype, i))) std::abort();
      }
    }
    for (const chorus::AdapterWeight& weight : adapter.weights) {
      if (weight.layer < -1 || weight.layer >= model.config.num_hidden_layers || weight.data == nullptr) std::abort();
      for (int64_t i = 0; i < weight.rows * weight.cols; ++i) {
        if (!std::isfinite(chorus::loadAsFloat(weight.data, weight.dtype, static_cast<size_t>(i)))) std::abort();
      }
    }
    const auto ofModel = [&](int64_t vocabulary) { return vocabulary > 0 ? vocabulary : model.config.vocab_size; };
    const int64_t input = ofModel(adapter.input_vocab_size), head = ofModel(adapter.vocab_size);
    if (head > input || head < model.config.vocab_size) std::abort();
    for (const auto& [tokens, vocabulary] :
         {std::pair(&adapter.embedding_tokens, input), {&adapter.head_tokens, head}}) {
      if (tokens->rows.size() != tokens->tokens.size() * static_cast<size_t>(model.config.embedding_size)) std::abort();
      if (!std::is_sorted(tokens->tokens.begin(), tokens->tokens.end())) std::abort();
      if (!tokens->empty() && (tokens->tokens.front() < 0 || tokens->tokens.back() >= vocabulary)) std::abort();
    }
  } catch (const chorus::Error&) {
  }
}
