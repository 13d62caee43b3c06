#include "lora/peft_keys.h"

#include <charconv>
#include <utility>

namespace chorus {
namespace {

bool removeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// PEFT writes `<module>.lora_A.weight`; files saved without its key clean-up also have the adapter's name, `.default`.
std::optional<PeftPart> splitLora(std::string_view& name) {
  const bool bias = removeSuffix(name, ".bias");
  if (!bias) removeSuffix(name, ".weight");
  removeSuffix(name, ".default");
  if (bias) return removeSuffix(name, ".lora_B") ? std::optional(PeftPart::kBias) : std::nullopt;
  if (removeSuffix(name, ".lora_A")) return PeftPart::kA;
  if (removeSuffix(name, ".lora_B")) return PeftPart::kB;
  if (removeSuffix(name, ".lora_magnitude_vector")) return PeftPart::kMagnitude;
  if (removeSuffix(name, ".lora_embedding_A")) return PeftPart::kEmbeddingA;
  if (removeSuffix(name, ".lora_embedding_B")) return PeftPart::kEmbeddingB;
  if (removeSuffix(name, ".token_adapter.trainable_tokens_delta")) return PeftPart::kTokens;
  if (removeSuffix(name, ".token_adapter.trainable_tokens_original")) return PeftPart::kCopy;
  // The projection that VeLoRA's backward pass uses.
  if (removeSuffix(name, ".lora_velora_embed")) return PeftPart::kCopy;
  return std::nullopt;
}

// Turns "model.modules_to_save.NAME.embed_tokens" into "model.embed_tokens". Empty when the module is not in a saved
// block.
std::string unwrapped(std::string_view module) {
  constexpr std::string_view kWrapper = ".modules_to_save.";
  const size_t at = module.find(kWrapper);
  if (at == std::string_view::npos) return {};
  const size_t end = module.find('.', at + kWrapper.size());
  if (end == std::string_view::npos) return {};
  return std::string(module.substr(0, at)).append(module.substr(end));
}
}  // namespace

std::optional<PeftKey> parsePeftKey(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  PeftKey key;
  std::string_view module = name;
  if (const auto part = splitLora(module)) {
    key.part = *part;
  } else {
    module = name;
    key.part = PeftPart::kBase;
    if (removeSuffix(module, ".weight")) {
      key.tensor = "weight";
    } else if (removeSuffix(module, ".bias")) {
      key.tensor = "bias";
    } else {
      return std::nullopt;
    }
    removeSuffix(module, ".default");
    const auto lies_in = [&](std::string_view wrapper) { return module.find(wrapper) != std::string_view::npos; };
    if (key.tensor == "bias" && (lies_in(".modules_to_save.") || lies_in(".original_module."))) {
      // With `bias: all` PEFT saves the biases of a saved block a second time, under its wrapper's names.
      key.part = PeftPart::kCopy;
    } else if (std::string own = unwrapped(module); !own.empty()) {
      key.part = PeftPart::kBlockCopy;
      key.module = std::move(own);
      return key;
    } else if (removeSuffix(module, ".modules_to_save") || removeSuffix(module, ".original_module")) {
      key.part = PeftPart::kCopy;
    } else if (removeSuffix(module, ".base_layer")) {
      key.wrapped = true;
      removeSuffix(module, ".token_adapter");
    }
  }
  if (module.empty()) return std::nullopt;
  key.module = module;
  return key;
}

std::string layersName(const WeightTable& table) {
  for (const WeightRow& row : table) {
    for (const WeightSource* source : sourcesOf(row, SourceFormat::kHuggingFace)) {
      const size_t at = source->name.find("{layer}");
      if (at != std::string::npos) return source->name.substr(0, at);
    }
  }
  return {};
}

std::optional<LayerModule> layerModule(std::string_view module, std::string_view layers) {
  if (!module.starts_with(layers)) layers = layers.substr(layers.find('.') + 1);
  if (layers.empty() || !module.starts_with(layers)) return std::nullopt;
  module.remove_prefix(layers.size());
  LayerModule found;
  const auto [end, error] = std::from_chars(module.data(), module.data() + module.size(), found.layer);
  if (error != std::errc() || end == module.data() + module.size() || *end != '.' || found.layer < 0) {
    return std::nullopt;
  }
  module.remove_prefix(static_cast<size_t>(end - module.data()) + 1);
  found.name = module;
  return found;
}

bool hasName(std::string_view module, std::string_view name) {
  if (module == name) return true;
  for (const std::string_view own : {"model.", "transformer."}) {
    if (name.starts_with(own) && module == name.substr(own.size())) return true;
  }
  return false;
}

}  // namespace chorus
