// Batches of equal sequences over a paged KV cache, for the benchmarks of the ops that use the cache.
#pragma once

#include <numeric>

#include "kernels/kernel_bench.h"

namespace chorus::bench {

// `sequences` sequences, each with `rows` new tokens after `past` cached tokens.
struct SequenceShape {
  int32_t num_heads, num_kv_heads, head_size;
  int32_t sequences, rows, past;
  DType dtype;

  int64_t allRows() const { return int64_t{sequences} * rows; }
  int64_t qkvWidth() const { return int64_t{num_heads + 2 * num_kv_heads} * head_size; }
  KvLayer layer() const {
    KvLayer kv{nullptr, 0, dtype, num_kv_heads, head_size, 64};
    kv.block_stride = kvBlockBytes(kv);
    return kv;
  }
  double tokenBytes() const { return static_cast<double>(kvBlockBytes(layer())) / layer().tokens_per_block; }
};

// A prepared step of that shape. It has as many copies of the cache as fit into cold_bytes, at least one; next()
// returns them in turn, like the layers of a model.
class Sequences {
 public:
  Sequences(Backend& backend, const SequenceShape& shape, size_t cold_bytes)
      : context(backend.createContext()), kv_(shape.layer()) {
    const int32_t blocks = (shape.past + shape.rows + kv_.tokens_per_block - 1) / kv_.tokens_per_block;
    const auto layer_bytes = static_cast<size_t>(kv_.block_stride * blocks * shape.sequences);
    const size_t copies = std::max<size_t>(1, cold_bytes / layer_bytes);
    cache_ = filled(backend, copies * layer_bytes);
    for (size_t i = 0; i < copies; ++i) bases_.push_back(cache_.as<std::byte>() + i * layer_bytes);
    tables_.resize(static_cast<size_t>(blocks * shape.sequences));
    std::iota(tables_.begin(), tables_.end(), 0);
    for (int32_t s = 0; s < shape.sequences; ++s) {
      spans_.push_back({s * shape.rows, shape.rows, shape.past,
                        std::span(tables_).subspan(static_cast<size_t>(s * blocks), static_cast<size_t>(blocks))});
    }
    tokens_.resize(static_cast<size_t>(shape.allRows()));
    backend.prepare({tokens_, spans_, {}}, *context);
  }
  const KvLayer& next() {
    kv_.base = bases_[turn_++ % bases_.size()];
    return kv_;
  }

  std::unique_ptr<StepContext> context;

 private:
  KvLayer kv_;
  DeviceBuffer cache_;
  std::vector<std::byte*> bases_;
  std::vector<int32_t> tables_, tokens_;
  std::vector<SequenceSpan> spans_;
  size_t turn_ = 0;
};

}  // namespace chorus::bench
