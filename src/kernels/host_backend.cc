#include "kernels/host_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/cpu_features.h"
#include "base/error.h"

namespace chorus {

DeviceBuffer HostBackend::allocate(size_t bytes) {
  if (bytes == 0) return {};
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) fail(ErrorCode::kExhausted, "cannot allocate {} bytes of memory", bytes);
  // Without huge pages, reading weights and cache costs a page walk every 4 KB.
  if (bytes >= (size_t{4} << 20)) ::madvise(data, bytes, MADV_HUGEPAGE);
  return DeviceBuffer(this, data, bytes);
}

const void* HostBackend::importWeights(const void* host, size_t bytes, const Imported& imported) {
  constexpr size_t kWorthMoving = size_t{256} << 20;
  if (bytes < kWorthMoving || bytes > availableMemory() / 2) return host;
  auto weights = std::make_unique<MovedWeights>(host, bytes, nodes_);
  if (weights->data() == nullptr) return host;
  if (!import_in_background_) {
    weights->start(std::min(availableCores(), 8), false, imported);
    weights->wait();
  }
  weights_.push_back(std::move(weights));
  return weights_.back()->data();
}

void HostBackend::synchronize(Stream) {
  for (const auto& weights : weights_) weights->start(1, true, nullptr);
}

void HostBackend::free(void* data, size_t size) { ::munmap(data, size); }

void HostBackend::copyBlocks(const KvLayer& kv, std::span<const BlockCopy> copies, Stream) {
  auto* base = static_cast<std::byte*>(kv.base);
  for (const BlockCopy& copy : copies) {
    std::memcpy(base + copy.to * kv.block_stride, base + copy.from * kv.block_stride,
                static_cast<size_t>(kvBlockBytes(kv)));
  }
}

void HostBackend::upload(void* device, const void* host, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void HostBackend::download(void* host, const void* device, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace chorus
