#include "kernels/host_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/cpu_features.h"
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

const void* HostBackend::importWeights(const void* host, size_t bytes, const Copied& copied) {
  constexpr size_t kWorthMoving = size_t{256} << 20;
  if (bytes < kWorthMoving || bytes > availableMemory() / 2) return host;
  AlignedBuffer copy(bytes);
  const auto copiers_wanted = static_cast<size_t>(std::min(availableCores(), 8));
  const size_t share = (bytes / copiers_wanted + 4095) / 4096 * 4096;
  constexpr size_t kPiece = size_t{16} << 20;
  std::vector<std::thread> copiers;
  for (size_t first = 0; first < bytes; first += share) {
    copiers.emplace_back([&, first] {
      const size_t end = std::min(first + share, bytes);
      for (size_t begin = first; begin < end; begin += kPiece) {
        const size_t size = std::min(kPiece, end - begin);
        std::memcpy(copy.as<std::byte>() + begin, static_cast<const std::byte*>(host) + begin, size);
        copied(begin, size);
      }
    });
  }
  for (std::thread& copier : copiers) copier.join();
  weights_.push_back(std::move(copy));
  return weights_.back().data();
}

void HostBackend::free(void* data, size_t size) { ::munmap(data, size); }

void HostBackend::upload(void* device, const void* host, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void HostBackend::download(void* host, const void* device, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace chorus
