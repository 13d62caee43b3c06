// Arbitrary text is refused with an Error or gives a value whose nesting is bounded and which has no more values than
// the text has bytes.
// parses: src/formats/yaml.cc
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "formats/yaml.h"
#include "fuzz/fuzz_target.h"

// yaml-cpp keeps up to 1024 characters' tokens of a line until it knows whether they are a key, a hundred bytes each,
// and compiles its patterns when it first runs.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 4000, .bytes = 512 << 10};

namespace {

struct Measure {
  size_t values = 0;
  int depth = 0;
};

void measure(const chorus::Json& json, int depth, Measure& found) {
  ++found.values;
  if (!json.is_structured()) return;
  found.depth = std::max(found.depth, depth);
  for (const auto& item : json) measure(item, depth + 1, found);
}

}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  try {
    const auto json = chorus::parseYaml({reinterpret_cast<const char*>(data), size}, "fuzz");
    Measure found;
    measure(json, 1, found);
    if (found.depth > chorus::kMaxYamlDepth || found.values > size + 1) std::abort();
  } catch (const chorus::Error&) {
  }
}
