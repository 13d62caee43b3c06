// Reads arbitrary bytes as a Hugging Face config.json. They are either refused with an Error or give a model that has a
// weight table and a structure, and whose config a checkpoint can hold.
// parses: src/models/source_config.cc src/models/llama.cc src/models/llama_blocks.cc src/models/qwen2.cc
// parses: src/models/qwen3.cc src/models/granite.cc src/models/gpt2.cc src/models/phi3.cc src/models/falcon.cc
// parses: src/models/opt.cc src/models/gemma.cc src/models/bloom.cc src/models/experts.cc src/models/mixtral.cc
// parses: src/models/qwen2_moe.cc src/models/qwen3_moe.cc src/models/olmo2.cc
// parses: src/checkpoint/rope_scaling.cc src/models/cohere.cc src/models/granite_moe.cc src/models/ministral3.cc
// parses: src/models/smollm3.cc src/models/gptj.cc src/models/gpt_neox.cc src/models/gpt_bigcode.cc
// parses: src/models/starcoder2.cc src/models/text_model.cc
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "fuzz/fuzz_target.h"
#include "models/architecture.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages, the first tables, and
// a model of kMostLayers layers.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 32 << 10};

namespace {

// The number of layers that a config asks for, at most as many as a config may have. It may be named in any of these
// ways, also in the part of a model of text and images that describes the text.
int64_t layersAskedFor(const chorus::Json& json) {
  constexpr int64_t kMostOfAnyConfig = 4096;
  int64_t layers = 0;
  const auto look = [&](const chorus::Json& part) {
    for (const char* name : {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}) {
      const auto found = part.find(name);
      if (found != part.end() && found->is_number_unsigned()) {
        layers = std::max<int64_t>(layers, std::min<uint64_t>(found->get<uint64_t>(), kMostOfAnyConfig));
      }
    }
  };
  look(json);
  const auto text = json.find("text_config");
  if (text != json.end() && text->is_object()) look(*text);
  return layers;
}

}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  using namespace chorus;
  // A few bytes may ask for any number of layers that a config may have. The config has a few words about each, such as
  // the kind of its attention, and each has weights and a structure of about 400 bytes.
  constexpr int64_t kBytesOfLayerInConfig = 256;
  constexpr int32_t kMostLayers = 32;
  log::set_level(log::level::off);
  ModelConfig config;
  const Architecture* architecture = nullptr;
  try {
    const Json json = parseJson({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!json.is_object()) return;
    allowBytes(kBytesOfLayerInConfig * layersAskedFor(json));
    const auto names = json.find("architectures");
    const bool named = names != json.end() && names->is_array() && names->size() == 1 && (*names)[0].is_string();
    architecture = &findArchitecture(named ? (*names)[0].get<std::string>() : "LlamaForCausalLM");
    config = architecture->configFromHuggingFace(json, "fuzz");
    architectureOf(config, "fuzz");
  } catch (const Error&) {
    return;
  }
  if (std::min({config.hidden_size, config.vocab_size, config.intermediate_size, config.head_size}) < 1 ||
      std::min({config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads}) < 1) {
    std::abort();
  }
  if (config.num_hidden_layers > kMostLayers) return;
  if (architecture->weightTable(config).empty()) std::abort();
  if (architecture->modelSpec(config).layers.size() != static_cast<size_t>(config.num_hidden_layers)) std::abort();
  if (ModelConfig::fromJson(config.toJson(), "written").toJson() != config.toJson()) std::abort();
}
