// A backend that calls another one for everything. Base class of backends that record or measure the ops of a step.
#pragma once

#include <memory>
#include <utility>

#include "kernels/backend.h"

namespace chorus {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  DType activationType() const override { return inner_->activationType(); }
  const VariantRecord& used() const override { return inner_->used(); }
  // The buffers belong to the inner backend, which frees them and whose allocatedBytes() counts them.
  DeviceBuffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void upload(void* device, const void* host, size_t bytes, Stream stream) override {
    inner_->upload(device, host, bytes, stream);
  }
  void download(void* host, const void* device, size_t bytes, Stream stream) override {
    inner_->download(host, device, bytes, stream);
  }
  void synchronize(Stream stream) override { inner_->synchronize(stream); }
  void copyBlocks(const KvLayer& kv, std::span<const BlockCopy> copies, Stream stream) override {
    inner_->copyBlocks(kv, copies, stream);
  }
  std::byte* hostView(const DeviceBuffer& buffer) override { return inner_->hostView(buffer); }
  const void* importWeights(const void* host, size_t bytes, const Imported& imported) override {
    return inner_->importWeights(host, bytes, imported);
  }
  std::unique_ptr<StepContext> createContext() override { return inner_->createContext(); }
  void prepare(const StepBatch& batch, StepContext& context) override { inner_->prepare(batch, context); }

#define CHORUS_OP(Name, function, name)                                                 \
  void function(const Name##Args& args, StepContext& context, Stream stream) override { \
    inner_->function(args, context, stream);                                            \
  }
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 protected:
  Backend& inner() { return *inner_; }

 private:
  void free(void*, size_t) override {}

  std::unique_ptr<Backend> inner_;
};

}  // namespace chorus
