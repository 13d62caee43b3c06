// A backend that forwards every op to another backend and records a line about it: the op's name, the shapes of its
// inputs and outputs, and the rows and ranks of its adapters.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace chorus {

class RecordingBackend final : public Backend {
 public:
  explicit RecordingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  // Returns one line per op since the last call.
  std::vector<std::string> take() { return std::exchange(lines_, {}); }

  std::string_view name() const override { return inner_->name(); }
  DType activationType() const override { return inner_->activationType(); }
  const VariantRecord& used() const override { return inner_->used(); }
  DeviceBuffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void upload(void* device, const void* host, size_t bytes, Stream stream) override {
    inner_->upload(device, host, bytes, stream);
  }
  void download(void* host, const void* device, size_t bytes, Stream stream) override;
  void copyBlocks(const KvLayer& kv, std::span<const BlockCopy> copies, Stream stream) override {
    inner_->copyBlocks(kv, copies, stream);
  }
  void synchronize(Stream stream) override { inner_->synchronize(stream); }
  const void* importWeights(const void* host, size_t bytes, const Imported& imported) override {
    return inner_->importWeights(host, bytes, imported);
  }
  std::unique_ptr<StepContext> createContext() override { return inner_->createContext(); }
  void prepare(const StepBatch& batch, StepContext& context) override;

#define CHORUS_OP(Name, function, name) \
  void function(const Name##Args& args, StepContext& context, Stream stream) override;
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  // Does nothing: buffers are allocated, and freed, by the inner backend.
  void free(void*, size_t) override {}

  std::unique_ptr<Backend> inner_;
  StepGroups groups_;  // of the step that was prepared last
  std::vector<std::string> lines_;
};

// The lines with consecutive repeats written once: "6 x {", the repeated lines, "}".
std::vector<std::string> folded(const std::vector<std::string>& lines);

}  // namespace chorus
