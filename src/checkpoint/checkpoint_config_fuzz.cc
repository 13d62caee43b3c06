// Any bytes as a checkpoint's config.json: refused with an Error, or a config that is written and read back the same.
// parses: src/checkpoint/config.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using chorus::ModelConfig;
  chorus::log::set_level(chorus::log::level::off);
  chorus::Json json;
  try {
    json = ModelConfig::fromJson(chorus::parseJson({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz").toJson();
  } catch (const chorus::Error&) {
    return 0;
  }
  if (ModelConfig::fromJson(json, "written").toJson() != json) std::abort();
  return 0;
}
