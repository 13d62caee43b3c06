// Any bytes as a NeMo adapter's archive are refused with an Error or give an adapter that fits the model. An archive
// that is read whole can also be read by its headers, with the same modules.
// parses: src/lora/nemo_reader.cc src/lora/nemo_files.cc src/formats/nemo_layout.cc
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "fuzz/fuzz_target.h"
#include "lora/nemo_reader.h"
#include "lora/testing/test_model.h"

// The archive's headers cost what they cost in tar_archive_fuzz, and the config what it costs in yaml_fuzz. An archive
// that is packed with gzip may unpack to a mebibyte.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 20000, .bytes = 8 << 20};

namespace {

void check(const std::byte* values, chorus::DType dtype, size_t bytes) {
  for (size_t i = 0; i < bytes / chorus::dtypeSize(dtype); ++i) {
    if (!std::isfinite(chorus::loadAsFloat(values, dtype, i))) std::abort();
  }
}

}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  static const auto model = [] {
    chorus::TestModel made;
    made.config.head_size = 2;
    return made;
  }();
  chorus::log::set_level(chorus::log::level::off);
  constexpr size_t kMost = 1 << 20;
  try {
    const auto files = chorus::parseNemoFiles(std::as_bytes(std::span(data, size)), "fuzz", kMost, nullptr);
    const chorus::Adapter adapter = chorus::readNemoAdapter(files, "fuzz", {model.config, model.table, 64});
    if (adapter.modules.empty()) std::abort();
    for (const chorus::AdapterModule& module : adapter.modules) {
      if (module.layer < 0 || module.layer >= model.config.num_hidden_layers) std::abort();
      if (module.rank < 1 || module.rank > 64 || !std::isfinite(module.scale)) std::abort();
      check(module.a, module.dtype, module.aBytes());
      check(module.b, module.dtype, module.bBytes());
    }
  } catch (const chorus::Error&) {
  }
}
