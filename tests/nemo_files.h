// Writes adapters and models as NeMo keeps them, cut over ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/testing/nemo_test_file.h"

namespace chorus::test {

// A row-major matrix, or a vector if cols is 0.
struct NemoMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;

  int64_t width() const { return cols == 0 ? 1 : cols; }
  TestTensor named(std::string name) const;
};
NemoMatrix rowsOf(const NemoMatrix& matrix, int64_t begin, int64_t count);
NemoMatrix columnsOf(const NemoMatrix& matrix, int64_t begin, int64_t count);
NemoMatrix stacked(const std::vector<NemoMatrix>& parts);
// Rows of q, k and v -> the order of KV groups: the query heads of a group, its key, its value.
NemoMatrix byKvGroup(const NemoMatrix& qkv, int64_t heads, int64_t kv_heads, int64_t head_size);

// How Megatron cuts a tensor over tensor-parallel ranks.
enum class NemoCut {
  kWhole,
  kRows,
  kColumns,
  kHalves  // the halves of the rows on their own
};
NemoMatrix shardOf(const NemoMatrix& matrix, NemoCut cut, int32_t tp_rank, int32_t tp_size);

struct NemoTensor {
  std::string name;  // "{layer}" stands for the layer's number
  NemoMatrix matrix;
  NemoCut cut = NemoCut::kWhole;
};
// The checkpoints of all ranks. layers[i]: the tensors of layer i, numbered within their stage. first, last: tensors of
// the first and of the last stage.
std::vector<std::pair<std::string, std::vector<TestTensor>>> nemoCheckpoints(
    const std::vector<std::vector<NemoTensor>>& layers, const std::vector<NemoTensor>& first,
    const std::vector<NemoTensor>& last, int32_t tp_size, int32_t pp_size);

}  // namespace chorus::test
