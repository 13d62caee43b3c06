// Any bytes as the token file of `chorus run`, in both formats: refused with an Error or rows of token ids.
// parses: src/cli/prompt_files.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "cli/prompt_files.h"

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

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span input(data, size);
  rowsOrRefusal([&] { return chorus::parseTokenCsv({reinterpret_cast<const char*>(data), size}, "fuzz"); });
  rowsOrRefusal([&] { return chorus::parseTokenNpy(std::as_bytes(input), "fuzz"); });
  return 0;
}
