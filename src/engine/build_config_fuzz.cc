// Any bytes as build_config of an engine: refused with an Error, or limits that are written and read back the same.
// parses: src/engine/build_config.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "engine/build_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using chorus::BuildConfig;
  chorus::log::set_level(chorus::log::level::off);
  chorus::Json json;
  try {
    json = BuildConfig::fromJson(chorus::parseJson({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz").toJson();
  } catch (const chorus::Error&) {
    return 0;
  }
  if (BuildConfig::fromJson(json, "written").toJson() != json) std::abort();
  return 0;
}
