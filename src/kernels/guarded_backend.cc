#include "kernels/guarded_backend.h"

#include <cstring>
#include <vector>

#include "kernels/cpu_backend.h"
#include "kernels/guarded_arena.h"

namespace chorus {
namespace {

class GuardedBackend final : public Backend {
 public:
  explicit GuardedBackend(std::unique_ptr<Backend> cpu) : cpu_(std::move(cpu)) {}

  std::string_view name() const override { return "guarded"; }
  DType activationType() const override { return cpu_->activationType(); }
  const VariantRecord& used() const override { return cpu_->used(); }

  DeviceBuffer allocate(size_t bytes) override {
    return bytes == 0 ? DeviceBuffer() : DeviceBuffer(this, arena_.allocate(bytes), bytes);
  }
  void upload(void* device, const void* host, size_t bytes, Stream) override {
    const GuardedArena::Open open(arena_);
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void download(void* host, const void* device, size_t bytes, Stream) override {
    const GuardedArena::Open open(arena_);
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  void synchronize(Stream) override {}
  void copyBlocks(const KvLayer& kv, std::span<const BlockCopy> copies, Stream stream) override {
    const GuardedArena::Open open(arena_);
    cpu_->copyBlocks(kv, copies, stream);
  }
  const void* importWeights(const void* host, size_t bytes, const Imported& imported) override {
    DeviceBuffer copy = allocate(bytes);
    upload(copy.data(), host, bytes, {});
    if (imported) imported(bytes);
    weights_.push_back(std::move(copy));
    return weights_.back().data();
  }

  std::unique_ptr<StepContext> createContext() override { return cpu_->createContext(); }
  void prepare(const StepBatch& batch, StepContext& context) override {
    const GuardedArena::Open open(arena_);
    cpu_->prepare(batch, context);
  }
#define CHORUS_OP(Name, function, name)                                                 \
  void function(const Name##Args& args, StepContext& context, Stream stream) override { \
    const GuardedArena::Open open(arena_);                                              \
    cpu_->function(args, context, stream);                                              \
  }
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  void free(void* data, size_t size) override { arena_.free(data, size); }

  GuardedArena arena_;
  std::unique_ptr<Backend> cpu_;
  std::vector<DeviceBuffer> weights_;
};
}  // namespace

std::unique_ptr<Backend> createGuardedBackend(const BackendOptions& options) {
  BackendOptions cpu = options;
  cpu.name = "cpu";
  return std::make_unique<GuardedBackend>(createCpuBackend(cpu));
}

}  // namespace chorus
