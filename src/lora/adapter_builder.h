// Shared by all adapter readers: finds a module's place in the model and turns tensors into AdapterModules.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "checkpoint/weight_table.h"
#include "formats/tensor_file.h"
#include "lora/adapter.h"

namespace chorus {

// A module that the model offers to adapters.
struct ModulePlace {
  const WeightRow* row = nullptr;
  const LoraTarget* target = nullptr;
  int64_t expert = -1;  // that the module's name has; -1: none
  // Whether the module is the parameter of all experts at once.
  bool isOfAllExperts() const { return row->experts > 0 && expert < 0; }
  int64_t in() const { return row->shape[1]; }
  int64_t out() const { return target->rows; }
};
// The table must outlive the results. nullopt when the layer has no such module.
std::optional<ModulePlace> findModule(const WeightTable& table, int32_t module_id, int32_t layer);
// The modules whose rows of B together are those of the module `module_id`, in their order. attn_qkv has the rows of
// attn_q, attn_k and attn_v, if the layer has no module of that id; mlp_gate_up has those of mlp_h_to_4h (the activated
// half), then those of mlp_gate. Empty when the layer has no such modules.
std::vector<ModulePlace> findModulesOfId(const WeightTable& table, int32_t module_id, int32_t layer);
// A module of a fused source linear has one place for each part; all places have the same number of source rows
// (SourceRows::rowsOfSource). Empty when the layer has no such module.
std::vector<ModulePlace> findModules(const WeightTable& table, std::string_view module_name, int32_t layer);
// The parameters of all experts that a module holds, by their names after the module's, in the order of the table:
// {"gate_up_proj", "down_proj"} for "mlp.experts".
std::vector<std::string> expertParameters(const WeightTable& table, std::string_view module_name, int32_t layer);
// All module names of the model, for error lines.
std::string moduleNames(const WeightTable& table);

// float32, float16, bfloat16 and float64.
bool isAdapterDType(DType dtype);
// The functions below charge `throttle`, which may be null, for the bytes that they read.
//
// Whether all values are finite, and float64 values also within float32's range. dtype must satisfy isAdapterDType;
// bytes may be unaligned.
bool allFinite(std::span<const std::byte> bytes, DType dtype, BackgroundThrottle* throttle = nullptr);
// Whether all values, which are finite in the type `from`, are finite in the type `to`. Both are float32, float16 or
// bfloat16; bytes are aligned to their elements.
bool allFiniteAs(std::span<const std::byte> bytes, DType from, DType to, BackgroundThrottle* throttle = nullptr);
// Whether all values are zero. dtype must satisfy isAdapterDType; bytes may be unaligned.
bool allZero(std::span<const std::byte> bytes, DType dtype, BackgroundThrottle* throttle = nullptr);
// The tensor's values as floats. Its dtype must satisfy isAdapterDType; its bytes may be unaligned.
std::vector<float> toFloats(const TensorView& tensor, BackgroundThrottle* throttle = nullptr);

// Most bytes that AdapterBuilder allocates for copies and conversions of a file's tensors. The file may have been
// parsed without its values.
uint64_t copiedBytes(const TensorFile& file);

class AdapterBuilder {
 public:
  // throttle: is charged for the bytes that are copied and converted; may be null.
  explicit AdapterBuilder(std::string name, BackgroundThrottle* throttle = nullptr) : throttle_(throttle) {
    adapter_.name = std::move(name);
  }
  BackgroundThrottle* throttle() const { return throttle_; }

  // From now on `add` uses only the tensors' shapes and points to `zeros` instead of their values. `zeros` must be
  // aligned and at least as long as the longest tensor.
  void takeShapesOnly(const std::byte* zeros) {
    zeros_ = zeros;
    adapter_.only_shapes = true;
  }
  bool takesShapesOnly() const { return adapter_.only_shapes; }

  // Limits the values that are charged from now on to a few times the bytes of their file, because any number of a
  // PyTorch file's tensors may share their values. source names the file in errors.
  void limitValues(uint64_t file_bytes, std::string source);
  // Throws Error(kCorrupt) when the values exceed the limit. Both `add` charge the bytes of their tensors.
  void charge(uint64_t bytes);

  // Adds a module. a and b must have adapter dtypes and the module's shapes. They are used in place when aligned and
  // both of one dtype other than float64; otherwise they are copied, float64 and mixed dtypes as float32.
  void add(AdapterModule module, const TensorView& a, const TensorView& b);
  // Adds values that replace the base's, copied under the same conditions. They must have an adapter dtype and the
  // weight's shape.
  void add(AdapterWeight weight, const TensorView& values);
  // Keeps the memory that tensors passed to `add` point into alive.
  void keep(std::shared_ptr<const void> memory) { adapter_.storage.push_back(std::move(memory)); }
  // Gives direct access to fields that are not built from single tensors.
  Adapter& adapter() { return adapter_; }
  // Sorts modules and weights, finds out whether they have an effect, and returns the adapter; call it once.
  Adapter finish(std::string content_hash);

 private:
  const std::byte* place(const TensorView& tensor, DType dtype);
  Adapter adapter_;
  BackgroundThrottle* throttle_;
  const std::byte* zeros_ = nullptr;
  // The copies that place() has made. The key is the source's address and size, and the copy's type: the parts of a
  // fused linear may share one A, which is copied once.
  using Origin = std::tuple<const std::byte*, size_t, DType>;
  std::map<Origin, const std::byte*> copies_;
  std::string source_;                                           // of the values; empty without a limit
  uint64_t values_left_ = std::numeric_limits<uint64_t>::max();  // bytes that may still be charged
};

}  // namespace chorus
