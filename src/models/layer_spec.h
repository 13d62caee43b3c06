// The structure of a network, as a few enums per layer: what decoder.cc needs to know beyond tensor shapes.
#pragma once

#include <vector>

namespace chorus {

enum class ResidualForm { kPre };
enum class NormKind { kRms };
enum class MlpKind { kGated };
enum class Activation { kSilu, kGeluTanh, kGelu, kRelu };

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
