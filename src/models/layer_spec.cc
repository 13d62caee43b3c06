#include "models/layer_spec.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace chorus {
namespace {

constexpr std::pair<std::string_view, Activation> kActivations[] = {{"silu", Activation::kSilu},
                                                                    {"gelu", Activation::kGelu},
                                                                    {"gelu_new", Activation::kGeluTanh},
                                                                    {"gelu_fast", Activation::kGeluTanh},
                                                                    {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                                    {"relu", Activation::kRelu}};
}  // namespace

Activation activationNamed(std::string_view hidden_act) {
  for (const auto& [name, activation] : kActivations) {
    if (name == hidden_act) return activation;
  }
  fail(ErrorCode::kUnsupported, "hidden_act '{}' is not supported", hidden_act);
}

std::vector<Json> activationNames() {
  std::vector<Json> names;
  for (const auto& entry : kActivations) names.emplace_back(std::string(entry.first));
  return names;
}

}  // namespace chorus
