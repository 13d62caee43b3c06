// Any bytes as the token file of `chorus run`, in both formats, are refused with an Error or give rows of token ids.
// parses: src/cli/prompt_files.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "cli/prompt_files.h"
#include "fuzz/fuzz_target.h"

namespace {

template <typename Parse>
void rowsOrRefusal(Parse parse) {
  try {
    for (const auto& row : parse()) {
      if (row.empty()) std::abort();
      for (const int32_t token : row) {
        if (token < 0) std::abort();
      }
    }
  } catch (const chorus::Error&) {
  }
}

}  // namespace

// An empty input takes under 20 us; the rest allows for two formatted and thrown refusals and for other programs' use
// of the caches. The memory is that of the messages and of the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const std::span input(data, size);
  rowsOrRefusal([&] { return chorus::parseTokenCsv({reinterpret_cast<const char*>(data), size}, "fuzz"); });
  rowsOrRefusal([&] { return chorus::parseTokenNpy(std::as_bytes(input), "fuzz"); });
}
