// The binary operators of expressions.
#pragma once

#include <cstdint>
#include <string_view>

namespace chorus::tmpl {

enum class Op : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
inline constexpr int kOps = static_cast<int>(Op::kNotIn) + 1;

std::string_view opName(Op op);

}  // namespace chorus::tmpl
