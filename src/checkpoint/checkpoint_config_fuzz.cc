// Parses arbitrary bytes as a checkpoint's config.json. They are either refused with an Error or give a config that
// stays the same when it is written and read again.
// parses: src/checkpoint/config.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/config.h"
#include "checkpoint/quantisation.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  using chorus::ModelConfig;
  chorus::log::set_level(chorus::log::level::off);
  ModelConfig config;
  try {
    config = ModelConfig::fromJson(chorus::parseJson({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz");
  } catch (const chorus::Error&) {
    return;
  }
  if (config.mapping.tp_size < 1 || config.mapping.pp_size < 1 || config.num_hidden_layers < 1 ||
      config.num_attention_heads < 1 || config.hidden_size < 1 || config.head_size < 1) {
    std::abort();
  }
  const chorus::Json json = config.toJson();
  if (ModelConfig::fromJson(json, "written").toJson() != json) std::abort();
  try {
    const auto quantisation = chorus::weightQuantisation(config);
    if (quantisation && (quantisation->format.group < 0 || quantisation->format.group > 128)) std::abort();
  } catch (const chorus::Error&) {
  }
}
