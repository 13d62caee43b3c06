// Device memory that is the host's: what the CPU and the reference backend share.
#pragma once

#include "kernels/backend.h"

namespace chorus {

class HostBackend : public Backend {
 public:
  DeviceBuffer allocate(size_t bytes) override;
  void upload(void* device, const void* host, size_t bytes, Stream stream) override;
  void download(void* host, const void* device, size_t bytes, Stream stream) override;
  void synchronize(Stream) override {}
  const void* importWeights(const void* host, size_t) override { return host; }

 private:
  void free(void* data, size_t size) override;
};

}  // namespace chorus
