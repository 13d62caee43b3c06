#include "lora/adapted_modules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "lora/adapter_builder.h"
#include "lora/adapter_values.h"
#include "lora/module_spellings.h"

namespace chorus {
namespace {

std::string& tensorFor(ModuleTensors& tensors, PeftPart part) {
  switch (part) {
    case PeftPart::kA:
    case PeftPart::kEmbeddingA:
      return tensors.a;
    case PeftPart::kB:
    case PeftPart::kEmbeddingB:
      return tensors.b;
    case PeftPart::kBias:
      return tensors.bias;
    default:
      return tensors.magnitude;
  }
}
}  // namespace

AdaptedModules::AdaptedModules(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
                               const AdapterTarget& target, const BaseNames& names)
    : config_(config),
      weights_(weights),
      config_source_(config_source),
      target_(target),
      names_(names),
      layers_(layersName(target.table)) {}

void AdaptedModules::refuse(const std::string& tensor, std::string_view reason) const {
  fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", weights_.source(), tensor, reason);
}

void AdaptedModules::refuseUnknown(const std::string& tensor) const {
  refuse(tensor,
         fmt::format("adapts no module of {} that takes adapters; those are {} of layers 0 to {}",
                     target_.config.architecture, moduleNames(target_.table), target_.config.num_hidden_layers - 1));
}

// PEFT wraps the module once for each parameter that target_parameters has, in the order of the parameters: the last
// one's tensors have the module's own name, and those of each one before have one more ".base_layer".
bool AdaptedModules::takeExpertParameter(const std::string& name, PeftKey& key, LayerModule& place) const {
  constexpr std::string_view kWrapped = ".base_layer";
  std::string_view module = key.module, in_layer = place.name;
  size_t depth = 0;
  for (; in_layer.ends_with(kWrapped); ++depth) {
    in_layer.remove_suffix(kWrapped.size());
    module.remove_suffix(kWrapped.size());
  }
  std::vector<std::string> parameters = expertParameters(target_.table, in_layer, place.layer);
  if (parameters.empty()) return false;
  std::erase_if(parameters, [&](const std::string& parameter) {
    return !config_.modules.includesParameter(fmt::format("{}.{}", module, parameter));
  });
  if (depth >= parameters.size()) {
    refuse(name, fmt::format("is not of the parameters that {} targets; the two files are of different adapters",
                             config_source_));
  }
  const std::string& parameter = parameters[parameters.size() - 1 - depth];
  place.name = fmt::format("{}.{}", in_layer, parameter);
  key.module = fmt::format("{}.{}", module, parameter);
  return true;
}

ModuleTensors AdaptedModules::placeInLayer(const std::string& name, PeftKey key) const {
  ModuleTensors found{.key = key};
  auto place = layerModule(key.module, layers_);
  if (!place) refuseUnknown(name);
  // Layers may have different modules. A layer that the model does not have counts as its last one until it is
  // refused.
  const int32_t layer = place->layer;
  const auto layers = static_cast<int32_t>(target_.config.num_hidden_layers);
  place->layer = std::min(layer, layers - 1);
  const std::string stacked =
      key.form == AdapterForm::kMlx ? stackedModuleOf(place->name, target_.table, place->layer) : std::string();
  if (!stacked.empty()) {
    found.is_stack = true;
    place->name = stacked;
  } else if (takeExpertParameter(name, key, *place)) {
    found.parameter = key.module;
  } else {
    place->name = nameInTable(place->name, target_.table, place->layer);
  }
  const auto places =
      findModules(target_.table, found.is_stack ? expertName(place->name, 0) : place->name, place->layer);
  if (places.empty() || places.front().isOfAllExperts() != !found.parameter.empty()) refuseUnknown(name);
  if (layer >= layers) {
    refuse(name, fmt::format("belongs to layer {}, but the model has {} layers; the adapter is of another model", layer,
                             layers));
  }
  if (config_.mlx && config_.mlx->last_layers > 0 && layer < layers - config_.mlx->last_layers) {
    refuse(name, fmt::format("belongs to layer {}, but {} adapts only the last {} of {} layers; the two files are of "
                             "different adapters",
                             layer, config_source_, config_.mlx->last_layers, layers));
  }
  found.layer = layer;
  found.name = place->name;
  found.own_name = fmt::format("{}{}.{}", layers_, layer, place->name);
  found.key = std::move(key);
  return found;
}

void AdaptedModules::collect(const std::string& name, const PeftKey& key, AdapterBuilder& builder) {
  const bool embedding = names_.isEmbedding(key.module);
  const bool head = names_.isHead(key.module);
  ModuleTensors found{.key = key};
  if (embedding || head) {
    found.name = found.own_name = embedding ? names_.embedding : names_.head;
  } else {
    found = placeInLayer(name, key);
  }
  if (found.parameter.empty() && isParameter(name, found)) found.parameter = found.key.module + ".weight";
  // The matrices of an embedding have names of their own only in PEFT's form.
  const bool looked_up = key.part == PeftPart::kEmbeddingA || key.part == PeftPart::kEmbeddingB;
  if (key.form == AdapterForm::kPeft && looked_up != (embedding && found.parameter.empty()) &&
      key.part != PeftPart::kMagnitude) {
    refuse(name, looked_up ? "has the name of an embedding's tensor, but its module is not adapted as an embedding"
                           : "has the name of a linear layer's tensor, but its module is adapted as an embedding");
  }
  if (key.form != AdapterForm::kPeft && embedding && key.part == PeftPart::kMagnitude) {
    refuse(name, "is a DoRA magnitude of an embedding, which is read only in PEFT's form");
  }
  auto& tensors =
      modules_.try_emplace(found.layer < 0 ? found.name : fmt::format("layers.{}.{}", found.layer, found.name), found)
          .first->second;
  std::string& slot = tensorFor(tensors, key.part);
  // PEFT writes the magnitude twice for an adapted embedding or output head that it also saves whole.
  const bool may_be_twice = (embedding || head) && key.part == PeftPart::kMagnitude;
  if (!slot.empty() && !(may_be_twice && sameValues(*weights_.find(slot), *weights_.find(name), builder))) {
    refuse(name, fmt::format("is for the same weights as '{}'; remove one of the two", slot));
  }
  if (tensors.key.form != key.form || tensors.is_stack != found.is_stack) {
    refuse(name, "is of a module of which other tensors have the names of another tool");
  }
  slot = name;
}

void AdaptedModules::adaptTiedHead() {
  if (!target_.config.tie_word_embeddings) return;
  const auto embedding = modules_.find(names_.embedding);
  if (embedding == modules_.end() || embedding->second.key.form != AdapterForm::kMlx) return;
  ModuleTensors head = embedding->second;
  head.name = names_.head;
  head.is_tied_head = true;
  if (!modules_.try_emplace(names_.head, head).second) {
    refuse(embedding->second.a,
           "adapts the output head too, which the model ties to the embedding, but the file has "
           "tensors of both");
  }
}

bool AdaptedModules::isParameter(const std::string& name, const ModuleTensors& tensors) const {
  const auto any = [&](auto&& is) { return is(tensors.key.module) || is(tensors.own_name); };
  const bool by_module =
      any([&](const std::string& module) { return isTarget(module); }) || isTiedHead(tensors.key.module);
  const bool by_parameter =
      any([&](const std::string& module) { return config_.modules.includesParameter(module + ".weight"); });
  if (any([&](const std::string& module) { return config_.modules.saves(module); })) {
    refuse(name,
           fmt::format("belongs to a module that {} lists in modules_to_save; such a module cannot have LoRA tensors",
                       config_source_));
  }
  if (!by_module && !by_parameter && config_.modules.targetsAllLinear() && tensors.layer < 0) {
    refuse(name, fmt::format("is of the embedding or the output head, which all-linear, the target_modules of {}, does "
                             "not include; name the modules there",
                             config_source_));
  }
  if (!by_module && !by_parameter) {
    refuse(name, fmt::format("is not among the modules that {} targets; the two files are of different adapters",
                             config_source_));
  }
  // target_modules may match any module, so a parameter that is named as well takes precedence.
  return by_parameter;
}

bool AdaptedModules::isTiedHead(const std::string& module) const {
  return config_.ensure_weight_tying && target_.config.tie_word_embeddings && names_.isHead(module) &&
         isTarget(names_.embedding);
}

bool AdaptedModules::isTarget(const std::string& module) const {
  if (config_.modules.targetsAllLinear() && (names_.isEmbedding(module) || names_.isHead(module))) return false;
  return config_.modules.includes(module);
}

}  // namespace chorus
