// The PickleHost for torch.save's pickles. It accepts the functions and types that build storages and tensors. Every
// other name is refused in an Error that quotes it, or is opaque. Nothing is ever imported or called.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "formats/pickle.h"

namespace chorus {

// A block of elements whose bytes are stored elsewhere in the file under `key`.
struct TorchStorage {
  std::string key;
  DType dtype = DType::kUint8;  // kUint8 for an untyped storage
  uint64_t elements = 0;
  uint64_t bytes() const { return elements * dtypeSize(dtype); }
};

// A strided view of a storage. All its elements lie within the storage's bytes.
struct TorchTensor {
  uint32_t storage = 0;  // index in TorchObjects::storages()
  DType dtype = DType::kFloat32;
  uint64_t offset = 0;  // in elements, like strides
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;

  uint64_t elements() const;
  bool isContiguous() const;
};

// Selects how the reader treats classes and functions that a pickle names but that tensors do not need.
enum class OtherClasses {
  kRefused,
  // Such classes, functions and their objects are opaque values (PickleHost::isOpaque), because training checkpoints
  // have objects of optimizers beside their tensors. Names that only an attack needs, such as os.system, are refused
  // all the same. An enumeration of DeepSpeed is its number.
  kOpaque,
};

class TorchObjects : public PickleHost {
 public:
  // storage_id_fields: number of fields in a storage's id, 5 in zip archives and 6 in older files.
  TorchObjects(std::string_view source, size_t storage_id_fields, OtherClasses others = OtherClasses::kRefused)
      : source_(source), id_fields_(storage_id_fields), others_(others) {}

  PickleValue findGlobal(std::string_view module, std::string_view name) override;
  PickleValue call(PickleHeap& heap, const PickleValue& global, std::span<const PickleValue> arguments) override;
  PickleValue persistentLoad(const PickleHeap& heap, const PickleValue& id) override;
  std::optional<PickleValue> newObject(const PickleValue& global, std::span<const PickleValue> arguments) override;
  bool isOpaque(const PickleValue& value) const override;

  const std::vector<TorchStorage>& storages() const { return storages_; }
  const TorchStorage* findStorage(std::string_view key) const;
  // nullptr when the value is no tensor.
  const TorchTensor* tensor(const PickleValue& value) const;

 private:
  [[noreturn]] void corrupt(std::string_view reason) const;
  void charge(size_t work);
  PickleValue rebuildTensor(const PickleHeap& heap, std::span<const PickleValue> arguments, bool own_dtype);
  PickleValue rebuildFromType(PickleHeap& heap, std::span<const PickleValue> arguments);
  PickleValue rebuildParameter(const PickleHeap& heap, std::span<const PickleValue> arguments) const;
  std::vector<int64_t> extents(const PickleHeap& heap, const PickleValue& value) const;
  void checkGradient(const PickleHeap& heap, DType dtype, const PickleValue& requires_grad,
                     const PickleValue& hooks) const;

  std::string source_;
  size_t id_fields_;
  OtherClasses others_;
  std::vector<TorchStorage> storages_;
  std::map<std::string, uint32_t> storage_of_;  // not a hash table: hostile keys could collide
  std::vector<TorchTensor> tensors_;
  size_t work_ = 0;
};

}  // namespace chorus
