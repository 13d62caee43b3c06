// Reads arbitrary text as NeMo's model_config.yaml. It is either refused with an Error or gives a model that has a
// weight table and a structure, and whose config a checkpoint can hold.
// parses: src/models/nemo_config.cc src/models/gpt.cc
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "formats/yaml.h"
#include "fuzz/fuzz_target.h"
#include "models/architecture.h"
#include "models/nemo_config.h"

// The text costs what it costs in yaml_fuzz; a model of a few layers has a table and a structure of some kilobytes.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 20000, .bytes = 768 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  using namespace chorus;
  log::set_level(log::level::off);
  // A few bytes may ask for any number of layers, each of which has a structure.
  constexpr int32_t kMostLayers = 256;
  ModelConfig config;
  const Architecture* architecture = nullptr;
  try {
    const Json yaml = parseYaml({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!yaml.is_object()) return;
    config = readNemoModelConfig(yaml, "fuzz").config;
    if (config.num_hidden_layers > kMostLayers) return;
    config.vocab_size = 8;
    config.finalize("fuzz");
    architecture = &architectureOf(config, "fuzz");
  } catch (const Error&) {
    return;
  }
  if (std::min({config.hidden_size, config.intermediate_size, config.head_size}) < 1 ||
      std::min({config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads}) < 1) {
    std::abort();
  }
  if (architecture->weightTable(config).empty()) std::abort();
  if (architecture->modelSpec(config).layers.size() != static_cast<size_t>(config.num_hidden_layers)) std::abort();
  if (ModelConfig::fromJson(config.toJson(), "written").toJson() != config.toJson()) std::abort();
}
