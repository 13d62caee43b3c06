// Tensors of the Executor API: row-major, in host memory, with a type and a shape that are known at run time.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "chorus/types.h"

namespace chorus::executor {

namespace detail {
using DimType64 = std::int64_t;
}  // namespace detail

// Extents, outermost first. A Shape owns its extents, whereas TensorRT-LLM's references the caller's.
class Shape {
 public:
  using DimType64 = detail::DimType64;
  using value_type = DimType64;
  using size_type = std::size_t;
  using const_pointer = const DimType64*;
  using const_reference = const DimType64&;
  using const_iterator = const DimType64*;

  Shape() = default;
  Shape(const DimType64* data, size_type size) : dims_(data, data + size) {}
  Shape(std::initializer_list<DimType64> dims) : dims_(dims) {}
  Shape(std::vector<DimType64> dims) : dims_(std::move(dims)) {}  // Chorus

  size_type size() const { return dims_.size(); }
  bool empty() const { return dims_.empty(); }
  const DimType64* data() const { return dims_.data(); }
  const DimType64& operator[](size_type i) const { return dims_[i]; }
  const DimType64& at(size_type i) const { return dims_.at(i); }  // Chorus
  const_iterator begin() const { return dims_.data(); }
  const_iterator end() const { return dims_.data() + dims_.size(); }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<DimType64> dims_;
};

// A tensor handle: copies share type, shape and bytes. A default-constructed tensor is empty: no bytes, kUNKNOWN, and
// false as a bool. Factories throw std::invalid_argument for an invalid type or shape and std::bad_alloc if memory does
// not suffice.
class Tensor {
 public:
  using CudaStreamPtr = StreamPtr;

  // The bytes are zeroed.
  static Tensor cpu(DataType dataType, Shape shape = {});
  // These return ordinary host memory, because the backend's memory is host memory. getMemoryType returns the requested
  // type.
  static Tensor pinned(DataType dataType, Shape shape = {});
  static Tensor pooledPinned(DataType dataType, Shape shape = {});
  static Tensor managed(DataType dataType, Shape shape = {});
  // Throws std::runtime_error: this build has no GPU memory.
  static Tensor gpu(DataType dataType, CudaStreamPtr stream, Shape shape = {});

  template <typename T>
  static Tensor cpu(Shape shape = {}) {
    return cpu(typeOf<T>(), std::move(shape));
  }
  template <typename T>
  static Tensor pinned(Shape shape = {}) {
    return pinned(typeOf<T>(), std::move(shape));
  }
  template <typename T>
  static Tensor pooledPinned(Shape shape = {}) {
    return pooledPinned(typeOf<T>(), std::move(shape));
  }
  template <typename T>
  static Tensor managed(Shape shape = {}) {
    return managed(typeOf<T>(), std::move(shape));
  }
  template <typename T>
  static Tensor gpu(CudaStreamPtr stream, Shape shape = {}) {
    return gpu(typeOf<T>(), std::move(stream), std::move(shape));
  }

  // A view of the caller's bytes, which must outlive the tensor and its copies. Executor::enqueueRequest copies the
  // bytes of a request's views, so those need to live only until it returns.
  static Tensor of(DataType dataType, void* data, Shape shape);
  template <typename T>
  static Tensor of(T* data, Shape shape) {
    return of(typeOf<T>(), static_cast<void*>(data), std::move(shape));
  }
  // Views any container with data() and size().
  template <typename T>
  static Tensor of(T& data) {
    if (static_cast<std::uint64_t>(data.size()) > std::numeric_limits<Shape::DimType64>::max()) {
      throw std::invalid_argument("a tensor's extents must fit 63 bits");
    }
    return of(data.data(), {static_cast<Shape::DimType64>(data.size())});
  }

  // Chorus: a copy of the caller's bytes.
  static Tensor copyOf(DataType dataType, const void* data, Shape shape);

  // Each returns a tensor with its own copy of the bytes.
  Tensor copyToCpu(CudaStreamPtr stream = nullptr) const;
  Tensor copyToPinned(CudaStreamPtr stream = nullptr) const;
  Tensor copyToPooledPinned(CudaStreamPtr stream = nullptr) const;
  Tensor copyToManaged(CudaStreamPtr stream = nullptr) const;
  Tensor copyToGpu(CudaStreamPtr stream) const;  // throws, as gpu() does

  Tensor() noexcept = default;

  void* getData();
  const void* getData() const;
  DataType getDataType() const;
  MemoryType getMemoryType() const;
  Shape getShape() const;
  std::size_t getSize() const;  // number of elements
  std::size_t getSizeInBytes() const;
  // Chorus: whether the tensor owns its bytes. It does not if it was made by of().
  bool ownsData() const;

  void setZero(CudaStreamPtr stream = nullptr);
  // Copies the other's shape and bytes into this tensor; all copies of this tensor see it. Throws std::invalid_argument
  // if the types differ, or if the tensor does not own its bytes and they are too few.
  void setFrom(const Tensor& other, CudaStreamPtr stream = nullptr);

  explicit operator bool() const { return storage_ != nullptr; }
  // Whether both are the same tensor. Equal content is not enough.
  bool operator==(const Tensor& rhs) const { return storage_ == rhs.storage_; }
  bool operator!=(const Tensor& rhs) const { return !(rhs == *this); }

 private:
  struct Storage;
  template <typename T>
  static constexpr DataType typeOf() {
    return TypeTraits<std::remove_cv_t<T>>::value;
  }
  static Tensor allocate(DataType dataType, MemoryType memoryType, Shape shape);
  Tensor copyTo(MemoryType memoryType) const;

  std::shared_ptr<Storage> storage_;
};

}  // namespace chorus::executor
