// Any bytes as a Hugging Face config.json: refused with an Error, or a model whose weight table and structure exist and
// whose config a checkpoint can hold.
// parses: src/models/source_config.cc src/models/llama.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "models/architecture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  log::set_level(log::level::off);
  ModelConfig config;
  const Architecture* architecture = nullptr;
  try {
    const Json json = parseJson({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!json.is_object()) return 0;
    const auto names = json.find("architectures");
    const bool named = names != json.end() && names->is_array() && names->size() == 1 && (*names)[0].is_string();
    architecture = &findArchitecture(named ? (*names)[0].get<std::string>() : "LlamaForCausalLM");
    config = architecture->configFromHuggingFace(json, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (architecture->weightTable(config).empty()) std::abort();
  if (architecture->modelSpec(config).layers.size() != static_cast<size_t>(config.num_hidden_layers)) std::abort();
  if (ModelConfig::fromJson(config.toJson(), "written").toJson() != config.toJson()) std::abort();
  return 0;
}
