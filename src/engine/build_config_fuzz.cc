// Any bytes as build_config of an engine: refused with an Error, or limits that are written and read back the same.
// parses: src/engine/build_config.cc
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "engine/build_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using chorus::BuildConfig;
  chorus::log::set_level(chorus::log::level::off);
  BuildConfig config;
  try {
    config = BuildConfig::fromJson(chorus::parseJson({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz");
  } catch (const chorus::Error&) {
    return 0;
  }
  if (std::min({config.max_batch_size, config.max_input_len, config.max_num_tokens, config.max_beam_width,
                config.max_lora_rank, config.tokens_per_block}) < 1 ||
      config.max_seq_len < 0) {
    std::abort();
  }
  const chorus::Json json = config.toJson();
  if (BuildConfig::fromJson(json, "written").toJson() != json) std::abort();
  return 0;
}
