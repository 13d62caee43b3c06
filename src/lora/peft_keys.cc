#include "lora/peft_keys.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace chorus {
namespace {

// Components that wrappers of training code add to names, anywhere: FSDP, activation checkpointing, torch.compile and
// Lightning.
constexpr std::string_view kWrappers[] = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod",
                                          "_forward_module"};
// Prefixes that tools put before the names of the trained model: PEFT (two), DeepSpeed and DistributedDataParallel, and
// TRL's value heads.
constexpr std::string_view kPrefixes[] = {"base_model.model.", "base_model.", "module.", "pretrained_model."};
// Names of models that contain the layers.
constexpr std::string_view kModels[] = {"model.",          "transformer.", "gpt_neox.",
                                        "language_model.", "text_model.",  "llm."};
// Names of the list of layers.
constexpr std::string_view kLayerLists[] = {"layers.", "h.", "blocks."};

// An ending that the name of a low-rank tensor can have before ".weight".
struct Ending {
  std::string_view text;
  PeftPart part;
  AdapterForm form = AdapterForm::kPeft;
  enum class Weight { kOptional, kRequired, kNone } weight = Weight::kOptional;
};
using enum Ending::Weight;
constexpr Ending kEndings[] = {
    {".lora_A", PeftPart::kA},
    {".lora_B", PeftPart::kB},
    {".lora_magnitude_vector", PeftPart::kMagnitude},
    {".weight_m_wdecomp", PeftPart::kMagnitude},  // the DoRA authors' code
    {".lora_embedding_A", PeftPart::kEmbeddingA},
    {".lora_embedding_B", PeftPart::kEmbeddingB},
    {".token_adapter.trainable_tokens_delta", PeftPart::kTokens},
    {".token_adapter.trainable_tokens_original", PeftPart::kLeftOut},
    {".lora_velora_embed", PeftPart::kLeftOut},  // the projection that VeLoRA's backward pass uses
    {".lora_a", PeftPart::kA, AdapterForm::kTorchtune, kRequired},
    {".lora_b", PeftPart::kB, AdapterForm::kTorchtune, kRequired},
    {".magnitude", PeftPart::kMagnitude, AdapterForm::kTorchtune, kNone},
    {".lora_a", PeftPart::kA, AdapterForm::kMlx, kNone},
    {".lora_b", PeftPart::kB, AdapterForm::kMlx, kNone},
    {".m", PeftPart::kMagnitude, AdapterForm::kMlx, kNone}};

bool removeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

template <typename List>
bool removePrefixes(std::string_view& text, const List& prefixes) {
  const auto removes = [&](std::string_view prefix) {
    if (!text.starts_with(prefix) || text.size() == prefix.size()) return false;
    text.remove_prefix(prefix.size());
    return true;
  };
  bool any = false;
  while (std::ranges::any_of(prefixes, removes)) any = true;
  return any;
}

std::string withoutWrappers(std::string_view name) {
  std::string kept;
  bool first = true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view component = name.substr(begin, end - begin);
    begin = end + 1;
    if (std::ranges::find(kWrappers, component) != std::end(kWrappers)) continue;
    if (!std::exchange(first, false)) kept += '.';
    kept += component;
  }
  return kept;
}

const Ending* endingOf(std::string_view name, bool weight) {
  for (const Ending& ending : kEndings) {
    if (!name.ends_with(ending.text)) continue;
    if (ending.weight == (weight ? kNone : kRequired)) continue;
    return &ending;
  }
  return nullptr;
}

// Finds what a low-rank tensor is, and reduces `name` to its module. A file that was saved without PEFT's key clean-up
// has the adapter's name after "lora_A".
bool splitLora(std::string_view& name, PeftKey& key) {
  const bool bias = removeSuffix(name, ".bias");
  const bool weight = !bias && removeSuffix(name, ".weight");
  const Ending* ending = endingOf(name, weight);
  if (ending == nullptr) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot + 1 == name.size()) return false;
    name = name.substr(0, dot);
    ending = endingOf(name, weight);
    if (ending == nullptr || ending->form != AdapterForm::kPeft) return false;
  }
  if (bias && (ending->part != PeftPart::kB || ending->form != AdapterForm::kPeft)) return false;
  name.remove_suffix(ending->text.size());
  key.part = bias ? PeftPart::kBias : ending->part;
  key.form = ending->form;
  return true;
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

// Removes ".modules_to_save" or ".modules_to_save.NAME" from the end, NAME being an adapter's.
bool removeSaved(std::string_view& module) {
  if (removeSuffix(module, ".modules_to_save")) return true;
  const size_t dot = module.rfind('.');
  if (dot == std::string_view::npos || !module.substr(0, dot).ends_with(".modules_to_save")) return false;
  module = module.substr(0, dot);
  return removeSuffix(module, ".modules_to_save");
}

// Parses the name of a tensor that is not low-rank, and reduces `module` to its module.
bool splitBase(std::string_view& module, PeftKey& key) {
  key.part = PeftPart::kBase;
  if (removeSuffix(module, ".weight")) {
    key.tensor = "weight";
  } else if (removeSuffix(module, ".bias")) {
    key.tensor = "bias";
  } else {
    return false;
  }
  const auto lies_in = [&](std::string_view wrapper) { return module.find(wrapper) != std::string_view::npos; };
  if (removeSaved(module)) {
    key.part = PeftPart::kSaved;
  } else if (removeSuffix(module, ".original_module")) {
    key.part = PeftPart::kLeftOut;
  } else if (key.tensor == "bias" && (lies_in(".modules_to_save.") || lies_in(".original_module."))) {
    // With `bias: all` PEFT saves the biases of a saved block a second time, under its wrapper's names.
    key.part = PeftPart::kLeftOut;
  } else if (removeSuffix(module, ".base_layer")) {
    key.wrapped = true;
    removeSuffix(module, ".token_adapter");
  }
  return true;
}
}  // namespace

std::string nameInModel(std::string_view name) {
  const std::string trained = withoutWrappers(name);
  std::string_view rest = trained;
  removePrefixes(rest, kPrefixes);
  return std::string(rest);
}

std::optional<PeftKey> parsePeftKey(std::string_view name) {
  const std::string whole = nameInModel(name);
  std::string_view module = whole;
  PeftKey key;
  if (!splitLora(module, key)) {
    module = whole;
    if (!splitBase(module, key)) return std::nullopt;
    if (key.part == PeftPart::kBase) {
      if (std::string own = unwrapped(module); !own.empty()) {
        key.part = PeftPart::kBlockCopy;
        key.module = std::move(own);
        return key;
      }
    }
  }
  if (module.empty()) return std::nullopt;
  key.module = module;
  return key;
}

std::string_view withoutModelNames(std::string_view name) {
  removePrefixes(name, kModels);
  return name;
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
  module = withoutModelNames(module);
  layers = withoutModelNames(layers);
  // Names between the model and the list of layers, such as "decoder.".
  std::string_view container = layers;
  const auto list = std::ranges::find_if(kLayerLists, [&](std::string_view each) {
    return layers.ends_with(each) && (layers.size() == each.size() || layers[layers.size() - each.size() - 1] == '.');
  });
  if (list != std::end(kLayerLists)) container.remove_suffix(list->size());
  if (layers.empty() || !module.starts_with(container)) return std::nullopt;
  module.remove_prefix(container.size());
  if (list != std::end(kLayerLists)) {
    const auto own = std::ranges::find_if(kLayerLists, [&](std::string_view each) { return module.starts_with(each); });
    if (own == std::end(kLayerLists)) return std::nullopt;
    module.remove_prefix(own->size());
  }
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
  return withoutModelNames(module) == withoutModelNames(name);
}

}  // namespace chorus
