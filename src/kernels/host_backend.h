// Base class of the CPU and the reference backend, whose device memory is host memory.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/moved_weights.h"

namespace chorus {

class HostBackend : public Backend {
 public:
  explicit HostBackend(const BackendOptions& options)
      : import_in_background_(options.import_in_background), nodes_(options.nodes) {}
  DeviceBuffer allocate(size_t bytes) override;
  void upload(void* device, const void* host, size_t bytes, Stream stream) override;
  void download(void* host, const void* device, size_t bytes, Stream stream) override;
  void synchronize(Stream) override;
  void copyBlocks(const KvLayer& kv, std::span<const BlockCopy> copies, Stream stream) override;
  std::byte* hostView(const DeviceBuffer& buffer) override { return buffer.as<std::byte>(); }
  // Moves weights that are far larger than the caches to huge pages if there is enough memory: reading them from the 4
  // KB pages of a mapped file costs a tenth or more of the read bandwidth in page walks. With import_in_background, the
  // move begins at the first synchronize(), so that the first step does not compete with it for memory.
  const void* importWeights(const void* host, size_t bytes, const Imported& imported) override;

 private:
  void free(void* data, size_t size) override;

  bool import_in_background_;
  std::vector<NumaNode> nodes_;
  std::vector<std::unique_ptr<MovedWeights>> weights_;
};

}  // namespace chorus
