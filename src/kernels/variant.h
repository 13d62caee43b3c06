// A variant is one implementation of an op: the reference, or on the CPU one for each instruction set that was compiled
// in and, for some ops, for each weight format.
#pragma once

#include <algorithm>
#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/dtype.h"
#include "kernels/op_list.h"

namespace chorus {

struct Variant {
  Op op;
  std::optional<Isa> isa;      // instruction set it needs; none: the reference
  std::optional<DType> dtype;  // type of the weights or the KV cache that it reads; none: all types
  auto operator<=>(const Variant&) const = default;
};

// "reference", or the name of the instruction set.
inline std::string_view variantName(const Variant& variant) {
  return variant.isa ? isaName(*variant.isa) : std::string_view("reference");
}
// Returns op, name and dtype, such as "linear avx2 bfloat16"; without the dtype if the variant has none.
inline std::string variantText(const Variant& variant) {
  std::string text = std::string(opName(variant.op)) + " " + std::string(variantName(variant));
  return variant.dtype ? text + " " + std::string(dtypeName(*variant.dtype)) : text;
}

// Records which variants have run. Not thread-safe: ops are called by one thread at a time.
class VariantRecord {
 public:
  void add(const Variant& variant) {
    if (!has(variant)) variants_.push_back(variant);
  }
  bool has(const Variant& variant) const {
    return std::find(variants_.begin(), variants_.end(), variant) != variants_.end();
  }
  const std::vector<Variant>& all() const { return variants_; }

 private:
  std::vector<Variant> variants_;
};

}  // namespace chorus
