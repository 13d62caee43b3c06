// Reads arbitrary bytes as an engine's build_config. They are either refused with an Error or give limits that stay the
// same when they are written and read again.
// parses: src/engine/build_config.cc
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "engine/build_config.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  using chorus::BuildConfig;
  chorus::log::set_level(chorus::log::level::off);
  BuildConfig config;
  try {
    config = BuildConfig::fromJson(chorus::parseJson({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz");
  } catch (const chorus::Error&) {
    return;
  }
  if (std::min({config.max_batch_size, config.max_input_len, config.max_num_tokens, config.max_beam_width,
                config.max_lora_rank, config.tokens_per_block}) < 1 ||
      config.max_seq_len < 0) {
    std::abort();
  }
  const chorus::Json json = config.toJson();
  if (BuildConfig::fromJson(json, "written").toJson() != json) std::abort();
}
