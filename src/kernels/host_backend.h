// Device memory that is the host's: what the CPU and the reference backend share.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/moved_weights.h"

namespace chorus {

class HostBackend : public Backend {
 public:
  explicit HostBackend(bool import_in_background) : import_in_background_(import_in_background) {}
  DeviceBuffer allocate(size_t bytes) override;
  void upload(void* device, const void* host, size_t bytes, Stream stream) override;
  void download(void* host, const void* device, size_t bytes, Stream stream) override;
  void synchronize(Stream) override;
  std::byte* hostView(const DeviceBuffer& buffer) override { return buffer.as<std::byte>(); }
  // Weights far beyond every cache are moved to huge pages where memory allows: streamed from the 4 KB pages of a
  // mapped file they lose a tenth and more of the read bandwidth to page walks. In the background that begins when the
  // first step is done, which would wait for the memory that the move takes.
  const void* importWeights(const void* host, size_t bytes, const Imported& imported) override;

 private:
  void free(void* data, size_t size) override;

  bool import_in_background_;
  std::vector<std::unique_ptr<MovedWeights>> weights_;
};

}  // namespace chorus
