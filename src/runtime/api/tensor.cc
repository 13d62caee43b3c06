#include "chorus/tensor.h"

#include <cstring>
#include <new>

namespace chorus::executor {
namespace {

std::size_t elementSize(DataType type) {
  switch (type) {
    case DataType::kBOOL:
    case DataType::kUINT8:
    case DataType::kINT8:
    case DataType::kFP8:
      return 1;
    case DataType::kBF16:
    case DataType::kFP16:
      return 2;
    case DataType::kINT32:
    case DataType::kFP32:
      return 4;
    case DataType::kINT64:
      return 8;
    case DataType::kUNKNOWN:
      break;
  }
  throw std::invalid_argument("a tensor needs a known data type");
}

std::size_t elementsOf(const Shape& shape) {
  std::size_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw std::invalid_argument("a tensor's extents must not be negative");
    if (__builtin_mul_overflow(elements, static_cast<std::size_t>(extent), &elements)) throw std::bad_alloc();
  }
  return elements;
}

std::size_t bytesOf(DataType type, std::size_t elements) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(elements, elementSize(type), &bytes)) throw std::bad_alloc();
  return bytes;
}

[[noreturn]] void refuseGpu() {
  throw std::runtime_error("this build has no GPU memory: use Tensor::cpu or copyToCpu");
}

}  // namespace

struct Tensor::Storage {
  DataType type = DataType::kUNKNOWN;
  MemoryType memory = MemoryType::kCPU;
  Shape shape;
  std::size_t elements = 0;
  std::size_t bytes = 0;
  std::size_t capacity = 0;            // bytes
  std::unique_ptr<std::byte[]> owned;  // null: the caller owns data
  void* data = nullptr;
};

Tensor Tensor::allocate(DataType dataType, MemoryType memoryType, Shape shape) {
  auto storage = std::make_shared<Storage>();
  storage->type = dataType;
  storage->memory = memoryType;
  storage->elements = elementsOf(shape);
  storage->bytes = storage->capacity = bytesOf(dataType, storage->elements);
  storage->shape = std::move(shape);
  storage->owned = std::make_unique<std::byte[]>(storage->bytes);
  storage->data = storage->owned.get();
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  return tensor;
}

Tensor Tensor::cpu(DataType dataType, Shape shape) { return allocate(dataType, MemoryType::kCPU, std::move(shape)); }

Tensor Tensor::pinned(DataType dataType, Shape shape) {
  return allocate(dataType, MemoryType::kCPU_PINNED, std::move(shape));
}

Tensor Tensor::pooledPinned(DataType dataType, Shape shape) {
  return allocate(dataType, MemoryType::kCPU_PINNEDPOOL, std::move(shape));
}

Tensor Tensor::managed(DataType dataType, Shape shape) {
  return allocate(dataType, MemoryType::kUVM, std::move(shape));
}

Tensor Tensor::gpu(DataType, CudaStreamPtr, Shape) { refuseGpu(); }

Tensor Tensor::of(DataType dataType, void* data, Shape shape) {
  auto storage = std::make_shared<Storage>();
  storage->type = dataType;
  storage->elements = elementsOf(shape);
  storage->bytes = storage->capacity = bytesOf(dataType, storage->elements);
  storage->shape = std::move(shape);
  storage->data = data;
  if (data == nullptr && storage->bytes != 0)
    throw std::invalid_argument("the data is null, but the shape has elements");
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  return tensor;
}

Tensor Tensor::copyOf(DataType dataType, const void* data, Shape shape) {
  Tensor tensor = cpu(dataType, std::move(shape));
  if (tensor.getSizeInBytes() != 0) std::memcpy(tensor.getData(), data, tensor.getSizeInBytes());
  return tensor;
}

Tensor Tensor::copyTo(MemoryType memoryType) const {
  if (storage_ == nullptr) return {};
  Tensor copy = allocate(storage_->type, memoryType, storage_->shape);
  if (storage_->bytes != 0) std::memcpy(copy.getData(), storage_->data, storage_->bytes);
  return copy;
}

Tensor Tensor::copyToCpu(CudaStreamPtr) const { return copyTo(MemoryType::kCPU); }
Tensor Tensor::copyToPinned(CudaStreamPtr) const { return copyTo(MemoryType::kCPU_PINNED); }
Tensor Tensor::copyToPooledPinned(CudaStreamPtr) const { return copyTo(MemoryType::kCPU_PINNEDPOOL); }
Tensor Tensor::copyToManaged(CudaStreamPtr) const { return copyTo(MemoryType::kUVM); }
Tensor Tensor::copyToGpu(CudaStreamPtr) const { refuseGpu(); }

void* Tensor::getData() { return storage_ == nullptr ? nullptr : storage_->data; }
const void* Tensor::getData() const { return storage_ == nullptr ? nullptr : storage_->data; }
DataType Tensor::getDataType() const { return storage_ == nullptr ? DataType::kUNKNOWN : storage_->type; }
MemoryType Tensor::getMemoryType() const { return storage_ == nullptr ? MemoryType::kUNKNOWN : storage_->memory; }
Shape Tensor::getShape() const { return storage_ == nullptr ? Shape() : storage_->shape; }
std::size_t Tensor::getSize() const { return storage_ == nullptr ? 0 : storage_->elements; }
std::size_t Tensor::getSizeInBytes() const { return storage_ == nullptr ? 0 : storage_->bytes; }
bool Tensor::ownsData() const { return storage_ == nullptr || storage_->owned != nullptr; }

void Tensor::setZero(CudaStreamPtr) {
  if (storage_ != nullptr && storage_->bytes != 0) std::memset(storage_->data, 0, storage_->bytes);
}

void Tensor::setFrom(const Tensor& other, CudaStreamPtr) {
  if (getDataType() != other.getDataType()) throw std::invalid_argument("setFrom: the data types differ");
  if (storage_ == other.storage_) return;
  const std::size_t bytes = other.storage_->bytes;
  if (bytes > storage_->capacity) {
    if (!ownsData())
      throw std::invalid_argument("setFrom: the source has more bytes than the buffer that this tensor views");
    storage_->owned = std::make_unique<std::byte[]>(bytes);
    storage_->data = storage_->owned.get();
    storage_->capacity = bytes;
  }
  storage_->shape = other.storage_->shape;
  storage_->elements = other.storage_->elements;
  storage_->bytes = bytes;
  if (bytes != 0) std::memmove(storage_->data, other.storage_->data, bytes);
}

}  // namespace chorus::executor
