// The structure of a network as a few enums per layer, which decoder.cc needs in addition to the tensor shapes.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"

namespace chorus {

// Positions of the norms around a block (attention or the MLP) of a layer. The weight table has a row for each norm
// slot:
//   kPre       x + block(norm(x))        Llama           kAttentionIn, kMlpIn
//   kSandwich  x + norm(block(norm(x)))  Gemma 2, GLM-4  kAttentionIn, kAttentionOut, kMlpIn, kMlpOut
//   kPost      x + norm(block(x))        OLMo 2          kAttentionOut, kMlpOut
enum class ResidualForm { kPre, kSandwich, kPost };
inline bool normBefore(ResidualForm form) { return form != ResidualForm::kPost; }
inline bool normAfter(ResidualForm form) { return form != ResidualForm::kPre; }
enum class NormKind { kRms };
enum class MlpKind { kGated };
enum class Activation { kSilu, kGeluTanh, kGelu, kRelu };
// The activation for a config's hidden_act, in Hugging Face's names: "gelu" is exact; "gelu_pytorch_tanh", "gelu_new"
// and "gelu_fast" are its approximation by tanh. Throws Error(kUnsupported) for a name that no kernel computes.
Activation activationNamed(std::string_view hidden_act);
// All names that activationNamed() accepts, for Architecture::fields.
std::vector<Json> activationNames();

struct LayerSpec {
  ResidualForm residual = ResidualForm::kPre;
  NormKind norm = NormKind::kRms;
  MlpKind mlp = MlpKind::kGated;
  Activation activation = Activation::kSilu;
};

struct ModelSpec {
  std::vector<LayerSpec> layers;
};

}  // namespace chorus
