// Options of the conversion of a model to a checkpoint.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"

namespace chorus {

// Weight-only quantisation by round to nearest (convert/quantise.h).
struct QuantiseOptions {
  int32_t bits = 8;        // 8 or 4
  int32_t group_size = 0;  // inputs that share a scale: 32, 64 or 128; 0: one scale an output
  bool quantise_head = false;
};

struct ConvertOptions {
  std::optional<DType> dtype;  // float32, float16 or bfloat16; nullopt: that of the source's config, or of its tensors
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  bool use_parallel_embedding = false;
  int32_t embedding_sharding_dim = 0;  // 0: vocabulary, 1: hidden size; only with use_parallel_embedding
  std::optional<QuantiseOptions> quantise;
  int32_t workers = 0;  // threads that copy; 0: one per core
};

}  // namespace chorus
