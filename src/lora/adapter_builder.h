// What all adapter sources share: finding a module's place in the model, and turning tensors into AdapterModules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"
#include "lora/adapter.h"

namespace chorus {

// A module that the model offers to adapters.
struct ModulePlace {
  const WeightRow* row = nullptr;
  const LoraTarget* target = nullptr;
  int64_t in() const { return row->shape[1]; }
  int64_t out() const { return target->rows; }
};
// The table must outlive the results. nullopt when the model has no such module.
std::optional<ModulePlace> findModule(const WeightTable& table, int32_t module_id);
// A module of a fused source linear has a place for each part; all have the same number of rows in the module
// (SourceRows::rowsOfSource). Empty when the model has no such module.
std::vector<ModulePlace> findModules(const WeightTable& table, std::string_view module_name);
// All module names of the model, for error lines.
std::string moduleNames(const WeightTable& table);

// nullptr when the table has no row of this name.
const WeightRow* findRow(const WeightTable& table, std::string_view name);

// float32, float16, bfloat16 and float64.
bool isAdapterDType(DType dtype);
// Whether all values are finite, in float64 also within float32's range. dtype is one of isAdapterDType; bytes may be
// unaligned.
bool allFinite(std::span<const std::byte> bytes, DType dtype);
// The tensor's values; dtype is one of isAdapterDType, bytes may be unaligned.
std::vector<float> toFloats(const TensorView& tensor);

class AdapterBuilder {
 public:
  explicit AdapterBuilder(std::string name) { adapter_.name = std::move(name); }

  // Instead of their values, tensors that are added from now on have these zeros, which are aligned and as long as any
  // of them: their shapes alone count.
  void takeShapesOnly(const std::byte* zeros) {
    zeros_ = zeros;
    adapter_.only_shapes = true;
  }
  bool takesShapesOnly() const { return adapter_.only_shapes; }

  // Adds a module. a and b stay where they are when they are of one dtype that adapters keep and aligned, else they
  // are copied (float64 and mixed types as float32). Both are of adapter dtypes and of the module's shapes.
  void add(AdapterModule module, const TensorView& a, const TensorView& b);
  // Adds values that stand for the base's, likewise. They are of an adapter dtype and of the weight's shape.
  void add(AdapterWeight weight, const TensorView& values);
  // Keeps the memory that tensors passed to add point into.
  void keep(std::shared_ptr<const void> memory) { adapter_.storage.push_back(std::move(memory)); }
  // For what is not built of tensors one by one.
  Adapter& adapter() { return adapter_; }
  // Sorts and returns the adapter.
  Adapter finish(std::string content_hash);

 private:
  const std::byte* place(const TensorView& tensor, DType dtype);
  Adapter adapter_;
  const std::byte* zeros_ = nullptr;
};

}  // namespace chorus
