#include "kernels/host_backend.h"

#include <sys/mman.h>

#include <cstring>

#include "base/error.h"

namespace chorus {

DeviceBuffer HostBackend::allocate(size_t bytes) {
  if (bytes == 0) return {};
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) fail(ErrorCode::kExhausted, "cannot allocate {} bytes of memory", bytes);
  // Streams of weights and cache pay a page walk every 4 KB otherwise.
  if (bytes >= (size_t{4} << 20)) ::madvise(data, bytes, MADV_HUGEPAGE);
  return DeviceBuffer(this, data, bytes);
}

void HostBackend::free(void* data, size_t size) { ::munmap(data, size); }

void HostBackend::upload(void* device, const void* host, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void HostBackend::download(void* host, const void* device, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace chorus
