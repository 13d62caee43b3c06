// An adapter in the form that ops take: packed, on the device, found by layer and linear.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/linear/linear.h"

namespace chorus {

// The linears of a decoder layer as the runtime holds them.
enum class LinearId { kQkv, kDense, kFcGate, kProj };
inline constexpr int kNumLinears = 4;

// What one rank holds of an adapter. Immutable once made.
class AdapterParts {
 public:
  // layers: of this rank's stage, local ids.
  explicit AdapterParts(int32_t layers) : parts_(static_cast<size_t>(layers)) {}
  ~AdapterParts() {
    if (recycle_) recycle_(std::move(memory_));
  }
  AdapterParts(const AdapterParts&) = delete;
  AdapterParts& operator=(const AdapterParts&) = delete;
  // Throws std::out_of_range for a layer that is none of them.
  std::span<const LinearPart> at(int32_t layer, LinearId linear) const {
    return parts_.at(static_cast<size_t>(layer))[static_cast<size_t>(linear)];
  }
  void add(int32_t layer, LinearId linear, const LinearPart& part) {
    parts_[static_cast<size_t>(layer)][static_cast<size_t>(linear)].push_back(part);
  }
  // memory may be larger than the bytes that are used. recycle, if set, gets it at the end, on any thread.
  using Recycle = std::function<void(DeviceBuffer memory)>;
  void own(DeviceBuffer memory, size_t bytes, Recycle recycle = nullptr) {
    memory_ = std::move(memory);
    bytes_ = bytes;
    recycle_ = std::move(recycle);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<std::array<std::vector<LinearPart>, kNumLinears>> parts_;
  DeviceBuffer memory_;
  size_t bytes_ = 0;
  Recycle recycle_;
};

// An adapter ready for the steps of a rank group. Immutable once made; shared by all steps that use it.
struct PreparedAdapter {
  std::vector<std::shared_ptr<const AdapterParts>> ranks;  // of every rank
  size_t bytes = 0;                                        // over all of them
  std::string content_hash;
};

}  // namespace chorus
