#include <cstring>
#include <new>
#include <stdexcept>

#include "chorus/types.h"

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

}  // namespace

Tensor Tensor::cpu(DataType type, std::vector<std::int64_t> shape) {
  Tensor tensor;
  std::size_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw std::invalid_argument("a tensor's extents must not be negative");
    if (__builtin_mul_overflow(elements, static_cast<std::size_t>(extent), &elements)) throw std::bad_alloc();
  }
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(elements, elementSize(type), &bytes)) throw std::bad_alloc();
  tensor.type_ = type;
  tensor.shape_ = std::move(shape);
  tensor.elements_ = elements;
  tensor.bytes_ = bytes;
  tensor.data_ = std::make_shared<std::byte[]>(bytes);
  return tensor;
}

Tensor Tensor::of(DataType type, const void* data, std::vector<std::int64_t> shape) {
  Tensor tensor = cpu(type, std::move(shape));
  if (tensor.bytes_ != 0) std::memcpy(tensor.getData(), data, tensor.bytes_);
  return tensor;
}

}  // namespace chorus::executor
