// A backend that has another one compute and writes down every op: its name, the shapes of what it reads and writes,
// and the rows and ranks of adapters in it.
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

  // One line an op since the last call.
  std::vector<std::string> take() { return std::exchange(lines_, {}); }

  std::string_view name() const override { return inner_->name(); }
  const VariantRecord& used() const override { return inner_->used(); }
  DeviceBuffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void upload(void* device, const void* host, size_t bytes, Stream stream) override {
    inner_->upload(device, host, bytes, stream);
  }
  void download(void* host, const void* device, size_t bytes, Stream stream) override;
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
  // Buffers are the inner backend's.
  void free(void*, size_t) override {}

  std::unique_ptr<Backend> inner_;
  std::vector<std::string> lines_;
};

// The lines with what repeats written once: "6 x {", the lines, "}".
std::vector<std::string> folded(const std::vector<std::string>& lines);

}  // namespace chorus
