#include "kernels/backend.h"

#include <utility>

#include "base/error.h"
#include "kernels/cpu_backend.h"
#include "kernels/guarded_backend.h"
#include "kernels/reference_backend.h"

namespace chorus {

DeviceBuffer::DeviceBuffer(Backend* backend, void* data, size_t size) : backend_(backend), data_(data), size_(size) {
  backend_->allocated_.fetch_add(size_, std::memory_order_relaxed);
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  backend_->allocated_.fetch_sub(size_, std::memory_order_relaxed);
  backend_->free(data_, size_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : backend_(other.backend_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::unique_ptr<Backend> createBackend(const BackendOptions& options) {
  requireBackendName(options.name);
  if (options.name == "guarded") return createGuardedBackend(options);
  if (options.name == "reference") return createReferenceBackend();
  return createCpuBackend(options);
}

void requireBackendName(std::string_view name) {
  std::string names;
  for (const std::string& known : backendNames()) {
    if (known == name) return;
    names += (names.empty() ? "" : ", ") + known;
  }
  fail(ErrorCode::kInvalidArgument, "unknown backend {}; use one of {}", name, names);
}

const std::vector<std::string>& backendNames() {
  static const std::vector<std::string> kNames = {"cpu", "guarded", "reference"};
  return kNames;
}

}  // namespace chorus
