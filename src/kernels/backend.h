// The backend interface: device memory and a few coarse ops (op_list.h) over views of it, on an explicit stream. Models
// call these ops without depending on the backend or its instruction set.
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
#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gated_activation/gated_activation.h"
#include "kernels/kv_write/kv_write.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/moe/moe.h"
#include "kernels/numa.h"
#include "kernels/position_embedding/position_embedding.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/row_squares/row_squares.h"
#include "kernels/scale/scale.h"
#include "kernels/step_batch.h"
#include "kernels/variant.h"

namespace chorus {

class Backend;

// Owns device memory: zeroed on allocation, 64-byte aligned, freed by the destructor. Must not outlive its backend.
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

// An in-order queue of work. The CPU backend runs an op before the call returns; its stream is the null stream.
struct Stream {
  void* handle = nullptr;
};

// Metadata of one step in the backend's own form. prepare() fills it once per step; the next prepare() overwrites it.
// An op takes from it what is not device memory or a number: tokens, positions, block tables, and rows with adapters.
class StepContext {
 public:
  virtual ~StepContext() = default;
};

// Only one thread at a time may call ops and prepare(), even with different contexts: all contexts share the backend's
// threads and scratch memory.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Type of the activations between ops: what ops take and return as matrices of x, residual, delta, q, qkv and out.
  // Logits and sums of squares are float32 on every backend.
  virtual DType activationType() const { return DType::kFloat32; }
  // The variants that have run since the backend was created.
  virtual const VariantRecord& used() const = 0;

  // Throws Error(kExhausted) if there is not enough memory. Thread-safe; upload and download are thread-safe too, on
  // distinct streams.
  virtual DeviceBuffer allocate(size_t bytes) = 0;
  // Total size of all live buffers in bytes, as requested from allocate().
  size_t allocatedBytes() const { return allocated_.load(std::memory_order_relaxed); }
  virtual void upload(void* device, const void* host, size_t bytes, Stream stream) = 0;
  virtual void download(void* host, const void* device, size_t bytes, Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;
  // Copies whole blocks of one layer's KV cache, in order: a copy may read what an earlier one wrote.
  virtual void copyBlocks(const KvLayer& kv, std::span<const BlockCopy> copies, Stream stream) = 0;
  // Address at which the host may write the buffer without staging while no op uses it yet; null if the host has no
  // access to the buffer.
  virtual std::byte* hostView(const DeviceBuffer&) { return nullptr; }
  // Makes host memory, such as a mapped engine file, usable by ops. The memory must stay mapped and unchanged while the
  // backend lives. Returns `host` itself, or a copy that the backend keeps until it is destroyed. Before it returns, it
  // may call imported(bytes) from any thread for each piece that is in place; `imported` may be null.
  using Imported = std::function<void(size_t bytes)>;
  virtual const void* importWeights(const void* host, size_t bytes, const Imported& imported) = 0;

  virtual std::unique_ptr<StepContext> createContext() = 0;
  // The batch's spans must stay valid until the step's last op has returned.
  virtual void prepare(const StepBatch& batch, StepContext& context) = 0;

  // One virtual function per op: rmsNorm(const RmsNormArgs&, StepContext&, Stream) and so on.
#define CHORUS_OP(Name, function, name) \
  virtual void function(const Name##Args& args, StepContext& context, Stream stream) = 0;
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

 private:
  friend class DeviceBuffer;
  virtual void free(void* data, size_t size) = 0;
  std::atomic<size_t> allocated_{0};
};

// Options of createBackend().
//   - name: "cpu"; "reference" (plain float32 loops on one thread); or "guarded" (the CPU's ops on memory
//     whose addresses the host cannot access).
//   - threads: number of threads; 0 means availableCores().
//   - isa: instruction set to use; none means the best one of this machine.
//   - spin_us: time in microseconds that idle threads spin before they sleep. Use 0 if the process has more threads
//     than cores.
//   - nodes: the NUMA nodes on whose processors the threads run and on which weights lie; empty: anywhere. The caller
//     of the ops places its own thread.
struct BackendOptions {
  std::string name = "cpu";
  int threads = 0;
  std::optional<Isa> isa;
  int spin_us = 50;
  bool import_in_background = false;  // importWeights returns before the weights are in huge pages
  std::vector<NumaNode> nodes{};
};
// Throws Error if the backend or the instruction set is not available; the message lists those that are.
std::unique_ptr<Backend> createBackend(const BackendOptions& options);
const std::vector<std::string>& backendNames();
// Throws Error(kInvalidArgument) if there is no such backend; the message lists all names.
void requireBackendName(std::string_view name);

}  // namespace chorus
