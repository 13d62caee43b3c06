// The device: memory and about two dozen coarse ops over views, on an explicit stream. Models call ops and
// never ask which backend runs; nothing above this header sees an instruction set.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/attention/attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gated_activation/gated_activation.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_cache/rope_cache.h"
#include "kernels/step_batch.h"
#include "kernels/variant.h"

namespace chorus {

class Backend;

// Device memory, zeroed, 64-byte aligned; freed with the object. Must not outlive its backend.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Backend* backend, void* data, size_t size);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  void* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// An in-order queue of work. The CPU runs ops when they are called; its stream is the null stream.
struct Stream {
  void* handle = nullptr;
};

// A step's metadata in the backend's own form, made once a step. Reusable: prepare() overwrites it.
class StepContext {
 public:
  virtual ~StepContext() = default;
};

// Ops and prepare() are called by one thread at a time: the backend's own threads and scratch serve every
// context.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // The variants that have run an op since the backend was made.
  virtual const VariantRecord& used() const = 0;

  // Throws Error(kExhausted). Thread-safe, as are upload and download on distinct streams.
  virtual DeviceBuffer allocate(size_t bytes) = 0;
  // Of all buffers that live now, as they were asked for.
  size_t allocatedBytes() const { return allocated_.load(std::memory_order_relaxed); }
  virtual void upload(void* device, const void* host, size_t bytes, Stream stream) = 0;
  virtual void download(void* host, const void* device, size_t bytes, Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;
  // Where the host may write a buffer that no op uses yet, so that nothing need be staged; null where it can't.
  virtual std::byte* hostView(const DeviceBuffer&) { return nullptr; }
  // Makes host memory that stays alive and unchanged (a mapped engine file) usable by ops: returns it as it is, or a
  // copy that the backend keeps as long as it lives. Until it returns, imported(bytes), which may be null, is told of
  // the pieces that are in place, from any thread.
  using Imported = std::function<void(size_t bytes)>;
  virtual const void* importWeights(const void* host, size_t bytes, const Imported& imported) = 0;

  virtual std::unique_ptr<StepContext> createContext() = 0;
  // The batch's spans must stay valid until the step's last op returned.
  virtual void prepare(const StepBatch& batch, StepContext& context) = 0;

  // One function an op: rmsNorm(const RmsNormArgs&, StepContext&, Stream) and so on.
#define CHORUS_OP(Name, function, name) \
  virtual void function(const Name##Args& args, StepContext& context, Stream stream) = 0;
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  friend class DeviceBuffer;
  virtual void free(void* data, size_t size) = 0;
  std::atomic<size_t> allocated_{0};
};

// name: "cpu"; "reference": plain float32 loops on one thread; "guarded": the CPU's ops on memory that nothing outside
// an op, upload or download can touch. threads: 0 takes availableCores(). spin_us: how long idle threads look for work
// before they sleep; 0 where the process has more threads than cores. isa: the set to use, none for the best there is.
struct BackendOptions {
  std::string name = "cpu";
  int threads = 0;
  std::optional<Isa> isa;
  int spin_us = 50;
  bool import_in_background = false;  // weights may be used before they are where they are read fastest
};
// Throws Error that lists what is available.
std::unique_ptr<Backend> createBackend(const BackendOptions& options);
const std::vector<std::string>& backendNames();
// Throws Error(kInvalidArgument) that lists them.
void requireBackendName(std::string_view name);

}  // namespace chorus
