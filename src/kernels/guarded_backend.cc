#include "kernels/guarded_backend.h"

#include <cstring>
#include <vector>

#include "kernels/cpu_backend.h"
#include "kernels/guarded_addresses.h"
#include "kernels/guarded_arena.h"

namespace chorus {
namespace {

struct GuardedContext final : StepContext {
  std::unique_ptr<StepContext> cpu;
  GuardedGroups groups;
};

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
    if (bytes > 0) std::memcpy(arena_.toHost(device), host, bytes);
  }
  void download(void* host, const void* device, size_t bytes, Stream) override {
    if (bytes > 0) std::memcpy(host, arena_.toHost(device), bytes);
  }
  void synchronize(Stream) override {}
  void copyBlocks(const KvLayer& kv, std::span<const BlockCopy> copies, Stream stream) override {
    KvLayer translated = kv;
    addresses_.translate(translated);
    cpu_->copyBlocks(translated, copies, stream);
  }
  const void* importWeights(const void* host, size_t bytes, const Imported& imported) override {
    DeviceBuffer copy = allocate(bytes);
    upload(copy.data(), host, bytes, {});
    if (imported) imported(bytes);
    weights_.push_back(std::move(copy));
    return weights_.back().data();
  }

  std::unique_ptr<StepContext> createContext() override {
    auto context = std::make_unique<GuardedContext>();
    context->cpu = cpu_->createContext();
    return context;
  }
  void prepare(const StepBatch& batch, StepContext& context) override {
    auto& own = static_cast<GuardedContext&>(context);
    own.groups = GuardedGroups(batch.groups, addresses_);
    StepBatch translated = batch;
    translated.groups = own.groups.groups();
    cpu_->prepare(translated, *own.cpu);
  }
#define CHORUS_OP(Name, function, name)                                                 \
  void function(const Name##Args& args, StepContext& context, Stream stream) override { \
    Name##Args translated = args;                                                       \
    addresses_.translate(translated);                                                   \
    cpu_->function(translated, *static_cast<GuardedContext&>(context).cpu, stream);     \
  }
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  void free(void* data, size_t size) override { arena_.free(data, size); }

  GuardedArena arena_;
  const GuardedAddresses addresses_{arena_};
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
