#include "kernels/backend.h"

#include <utility>

#include "base/error.h"
#include "kernels/cpu_backend.h"
#include "kernels/guarded_backend.h"
#include "kernels/reference_backend.h"

namespace chorus {

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) backend_->free(data_, size_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : backend_(other.backend_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::unique_ptr<Backend> createBackend(const BackendOptions& options) {
  if (options.name == "cpu") return createCpuBackend(options);
  if (options.name == "guarded") return createGuardedBackend(options);
  if (options.name == "reference") return createReferenceBackend();
  fail(ErrorCode::kInvalidArgument, "--backend {}: not one of {}", options.name, fmt::join(backendNames(), ", "));
}

const std::vector<std::string>& backendNames() {
  static const std::vector<std::string> kNames = {"cpu", "guarded", "reference"};
  return kNames;
}

}  // namespace chorus
