// What an op can be computed by: the reference, and on the CPU one variant for each instruction set that was compiled
// in, for some ops one for each weight format as well.
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
  std::optional<Isa> isa;      // the set it needs; none: the reference
  std::optional<DType> dtype;  // the weight format it reads; none: every one
  auto operator<=>(const Variant&) const = default;
};

// "reference", or the instruction set.
inline std::string_view variantName(const Variant& variant) {
  return variant.isa ? isaName(*variant.isa) : std::string_view("reference");
}
// "linear avx2 bfloat16", the format where the variant has one.
inline std::string variantText(const Variant& variant) {
  std::string text = std::string(opName(variant.op)) + " " + std::string(variantName(variant));
  return variant.dtype ? text + " " + std::string(dtypeName(*variant.dtype)) : text;
}

// Which variants have run. Not thread-safe: ops are called by one thread at a time.
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
