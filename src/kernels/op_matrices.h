// The matrices that an op takes, found by the names of their fields, which all argument structs share. So a new op
// needs no code here.
#pragma once

#include <concepts>
#include <string_view>

#include "kernels/tensor.h"

namespace chorus {

enum class MatrixUse { kRead, kWritten, kUpdated };

// Calls visit(field name, matrix, use) for each matrix of the arguments whose data is not null. A matrix that may be
// read and written is kUpdated.
template <typename Args, typename F>
void forEachMatrix(const Args& args, F visit) {
  const auto see = [&](std::string_view name, const auto& matrix, bool result) {
    if (matrix.data == nullptr) return;
    const bool writable = std::same_as<std::remove_cvref_t<decltype(matrix)>, Matrix>;
    visit(name, ConstMatrix(matrix), result ? MatrixUse::kWritten : writable ? MatrixUse::kUpdated : MatrixUse::kRead);
  };
#define CHORUS_FIELD(field, result) \
  if constexpr (requires { ConstMatrix(args.field); }) see(#field, args.field, result);
  CHORUS_FIELD(x, false)
  CHORUS_FIELD(q, false)
  CHORUS_FIELD(qkv, false)
  CHORUS_FIELD(fc_gate, false)
  CHORUS_FIELD(residual, false)
  CHORUS_FIELD(delta, false)
  CHORUS_FIELD(out, true)
  CHORUS_FIELD(y, true)
#undef CHORUS_FIELD
}

}  // namespace chorus
