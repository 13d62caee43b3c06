// A LoRA adapter as read: whole (unsharded), unpacked, checked against a model. Sources make it (source_peft.h,
// source_tensors.h), shard.h cuts it for a rank, the session packs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace chorus {

// One adapted module of one layer: y = magnitude * (W x + scale * B (A x)).
struct AdapterModule {
  int32_t module_id = 0;    // module_ids.h
  std::string module_name;  // LoraTarget::module_name
  int32_t layer = 0;        // global id
  int64_t rank = 0;
  int64_t in = 0;
  int64_t out = 0;
  DType dtype = DType::kFloat32;  // of a and b: float32, float16 or bfloat16
  const std::byte* a = nullptr;   // [rank, in], aligned to its elements, in Adapter::storage
  const std::byte* b = nullptr;   // [out, rank], likewise
  std::vector<float> magnitude;   // DoRA: [out]; empty without DoRA
  // false: PEFT's magnitude vector m, to be divided by ||W + scale B A|| over each output row; true: divided already.
  bool magnitude_is_normalised = false;
  float scale = 1.0f;  // alpha / r or alpha / sqrt(r); 1 where the source folds it into B

  size_t aBytes() const { return static_cast<size_t>(rank * in) * dtypeSize(dtype); }
  size_t bBytes() const { return static_cast<size_t>(out * rank) * dtypeSize(dtype); }
};

struct Adapter {
  std::string name;
  std::vector<AdapterModule> modules;  // ascending by layer, then module id
  int64_t max_rank = 0;
  bool uses_dora = false;
  std::string content_hash;                          // SHA-256 of everything read: equal hashes mean equal adapters
  std::vector<std::shared_ptr<const void>> storage;  // what a and b point into; shared by copies
};

}  // namespace chorus
