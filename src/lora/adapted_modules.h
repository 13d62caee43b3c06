// Finds the modules that the low-rank tensors of an adapter in PEFT's form adapt, by the names of the tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "formats/tensor_file.h"
#include "lora/peft_config.h"
#include "lora/peft_keys.h"
#include "lora/peft_reader.h"
#include "lora/peft_replacements.h"

namespace chorus {

// Names of the tensors of one adapted module; empty when absent.
struct ModuleTensors {
  PeftKey key;
  int32_t layer = -1;  // -1: the embedding or the output head
  std::string name;    // LoraTarget::module_name with its expert's id; outside layers the module's whole name
  // The module's name in the base model's files. Patterns of the configuration may match it or key.module, the name
  // that the module had in training.
  std::string own_name;
  // If a parameter is adapted (target_parameters), its name in the base model, such as "lm_head.weight"; otherwise
  // empty.
  std::string parameter;
  bool is_stack = false;      // mlx-lm's matrices of all experts; `name` has "{expert}"
  bool is_tied_head = false;  // mlx-lm's adapter of the embedding, which is also the output head's: A is b, B is a
  std::string a, b, bias, magnitude;
};

class AdaptedModules {
 public:
  // All arguments must outlive this object.
  AdaptedModules(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
                 const AdapterTarget& target, const BaseNames& names);

  // Takes a low-rank tensor: A, B, a bias of B or a magnitude. Throws Error(kCorrupt) that names the tensor if the
  // model has no such module, if the configuration does not adapt it, or if another tensor has its place.
  void collect(const std::string& name, const PeftKey& key, AdapterBuilder& builder);
  // Adds the output head of a model that ties it to the embedding, if mlx-lm adapted the embedding: mlx-lm adapts both
  // together. Call it after collect() for all tensors.
  void adaptTiedHead();

  // The modules by name. The name of a module in a layer begins with "layers.N.".
  const std::map<std::string, ModuleTensors>& all() const { return modules_; }
  // Whether the output head is tied to an adapted embedding by ensure_weight_tying and uses the embedding's adapter.
  bool isTiedHead(const std::string& module) const;

  // Throws Error(kCorrupt) that names the file and the tensor.
  [[noreturn]] void refuse(const std::string& tensor, std::string_view reason) const;
  // refuse() with the modules that the model has.
  [[noreturn]] void refuseUnknown(const std::string& tensor) const;

 private:
  // If the module holds all experts of a layer, completes the names of the module and of its place to those of the
  // parameter that the tensor adapts, and returns true.
  bool takeExpertParameter(const std::string& name, PeftKey& key, LayerModule& place) const;
  // Finds the place of a tensor's module in a layer.
  ModuleTensors placeInLayer(const std::string& name, PeftKey key) const;
  // Whether target_modules includes the module. With all-linear, not the embedding or the output head.
  bool isTarget(const std::string& module) const;
  // Whether the module's weight is adapted as a parameter. Refuses a module that the configuration does not adapt.
  bool isParameter(const std::string& name, const ModuleTensors& tensors) const;

  const PeftConfig& config_;
  const TensorFile& weights_;
  std::string_view config_source_;
  const AdapterTarget& target_;
  const BaseNames& names_;
  std::string layers_;  // layersName()
  std::map<std::string, ModuleTensors> modules_;
};

}  // namespace chorus
