// Any bytes as a checkpoint's config.json: refused with an Error, or a config that is written and read back the same.
// parses: src/checkpoint/config.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/config.h"
#include "checkpoint/quantisation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using chorus::ModelConfig;
  chorus::log::set_level(chorus::log::level::off);
  ModelConfig config;
  try {
    config = ModelConfig::fromJson(chorus::parseJson({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz");
  } catch (const chorus::Error&) {
    return 0;
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
  return 0;
}
