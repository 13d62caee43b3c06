// Arbitrary bytes either parse as JSON within the limits, with sorted and with ordered keys, or are refused with an
// Error.
// parses: src/base/json.cc
#include "base/json.h"

#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "fuzz/fuzz_target.h"

namespace {

template <typename T>
void getAs(const chorus::Json& object, const std::string& key) {
  try {
    chorus::jsonGet<T>(object, key, "fuzz");
  } catch (const chorus::Error&) {
  }
}

void getAll(const chorus::Json& object) {
  for (const auto& [key, value] : object.items()) {
    getAs<bool>(object, key);
    getAs<int32_t>(object, key);
    getAs<int64_t>(object, key);
    getAs<uint64_t>(object, key);
    getAs<double>(object, key);
    getAs<std::string>(object, key);
  }
}

}  // namespace

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool sorted = false;
  try {
    const chorus::Json json = chorus::parseJson(text, "fuzz", {.max_bytes = 1 << 16, .max_depth = 8});
    sorted = true;
    if (chorus::Json::parse(json.dump(-1, ' ', false, chorus::Json::error_handler_t::replace)) != json) std::abort();
    if (json.is_object()) getAll(json);
    chorus::parseOrderedJson(text, "fuzz", {.max_bytes = 1 << 16, .max_depth = 8});
    sorted = false;
    chorus::parseJson(text, "fuzz", {.unique_keys = true});
  } catch (const chorus::Error&) {
    if (sorted) std::abort();  // parseJson accepted the text, so parseOrderedJson must accept it too
  }
}
