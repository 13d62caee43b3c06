// Device memory that is the host's: what the CPU and the reference backend share.
#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/backend.h"

namespace chorus {

class HostBackend : public Backend {
 public:
  DeviceBuffer allocate(size_t bytes) override;
  void upload(void* device, const void* host, size_t bytes, Stream stream) override;
  void download(void* host, const void* device, size_t bytes, Stream stream) override;
  void synchronize(Stream) override {}
  // Weights far beyond every cache are copied to huge pages where memory allows: streamed from the 4 KB pages of a
  // mapped file they lose a tenth and more of the read bandwidth to page walks.
  const void* importWeights(const void* host, size_t bytes, const Copied& copied) override;

 private:
  void free(void* data, size_t size) override;

  std::vector<AlignedBuffer> weights_;
};

}  // namespace chorus
