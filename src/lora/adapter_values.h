// The values of an adapter's tensors, checked and turned into PEFT's form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_file.h"
#include "lora/adapter_builder.h"
#include "lora/peft_keys.h"

namespace chorus {

// Returns a tensor of the file after checking its shape, its type and that its values are finite. Throws
// Error(kCorrupt) that names the tensor; for a wrong shape, the message also contains `hint`. throttle: is charged for
// the bytes of the values; may be null.
const TensorView& checkedTensor(const TensorFile& weights, const std::string& name, const std::vector<int64_t>& shape,
                                std::string_view hint, BackgroundThrottle* throttle);

// The form in which a file stores the matrices of one module.
struct ValuesForm {
  AdapterForm form = AdapterForm::kPeft;
  // The number of rows of a head if the rows of the linear's output are in the order of torchtune's RoPE, otherwise 0.
  // That order has the two halves of a head as adjacent pairs: row 2 i + s is row s * rows / 2 + i of Hugging Face's.
  int64_t head_rows = 0;
};

// A [rank, in] and B [out, rank] of a module in PEFT's form. Values in another form are converted into memory that the
// builder keeps. Throws like checkedTensor().
struct LowRank {
  TensorView a, b;
};
struct LowRankShape {
  int64_t rank = 0, in = 0, out = 0;
};
LowRank lowRankOf(const TensorFile& weights, const std::string& a, const std::string& b, const LowRankShape& shape,
                  const ValuesForm& form, AdapterBuilder& builder);
// The matrices of each expert, which mlx-lm stacks: A [experts, rank, in] (or [experts * rank, in], as older versions
// write it) and B [experts, out, rank]. Throws like checkedTensor().
std::vector<LowRank> lowRankOfExperts(const TensorFile& weights, const std::string& a, const std::string& b,
                                      const LowRankShape& shape, int64_t experts, BackgroundThrottle* throttle);
// A vector with one value for each of the `count` outputs: a bias or DoRA's magnitude, [count], or [count, 1] or
// [1, count] as the DoRA authors' code writes it.
std::vector<float> vectorOf(const TensorFile& weights, const std::string& name, int64_t count, const ValuesForm& form,
                            AdapterBuilder& builder);

// Whether two tensors have the same type, shape and, if they were read, values. Values that are compared are charged to
// the builder.
bool sameValues(const TensorView& one, const TensorView& other, AdapterBuilder& builder);

// The transpose of a matrix, in memory that the builder keeps.
TensorView transposed(const TensorView& matrix, AdapterBuilder& builder);
// Columns first, first + n, first + 2 n and so on of a matrix, in memory that the builder keeps.
TensorView everyNthColumn(const TensorView& matrix, int64_t n, int64_t first, AdapterBuilder& builder);

// Whether the file has B matrices of linears, all of them zero, and no values that replace the base model's.
bool isUntrained(const TensorFile& weights);

}  // namespace chorus
