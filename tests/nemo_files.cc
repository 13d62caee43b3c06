#include "nemo_files.h"

#include <fmt/format.h>

#include <stdexcept>

namespace chorus::test {

TestTensor NemoMatrix::named(std::string name) const {
  return {std::move(name), cols == 0 ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, cols}, values};
}

NemoMatrix rowsOf(const NemoMatrix& matrix, int64_t begin, int64_t count) {
  const auto from = matrix.values.begin() + begin * matrix.width();
  return {count, matrix.cols, {from, from + count * matrix.width()}};
}

NemoMatrix columnsOf(const NemoMatrix& matrix, int64_t begin, int64_t count) {
  NemoMatrix out = {matrix.rows, count, {}};
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const auto from = matrix.values.begin() + row * matrix.cols + begin;
    out.values.insert(out.values.end(), from, from + count);
  }
  return out;
}

NemoMatrix stacked(const std::vector<NemoMatrix>& parts) {
  NemoMatrix out = {0, parts.at(0).cols, {}};
  for (const NemoMatrix& part : parts) {
    out.rows += part.rows;
    out.values.insert(out.values.end(), part.values.begin(), part.values.end());
  }
  return out;
}

NemoMatrix byKvGroup(const NemoMatrix& qkv, int64_t heads, int64_t kv_heads, int64_t head_size) {
  const int64_t queries = heads / kv_heads * head_size, keys = heads * head_size, values = keys + kv_heads * head_size;
  std::vector<NemoMatrix> parts;
  for (int64_t group = 0; group < kv_heads; ++group) {
    parts.push_back(rowsOf(qkv, group * queries, queries));
    parts.push_back(rowsOf(qkv, keys + group * head_size, head_size));
    parts.push_back(rowsOf(qkv, values + group * head_size, head_size));
  }
  return stacked(parts);
}

NemoMatrix shardOf(const NemoMatrix& matrix, NemoCut cut, int32_t tp_rank, int32_t tp_size) {
  switch (cut) {
    case NemoCut::kWhole:
      return matrix;
    case NemoCut::kRows:
      return rowsOf(matrix, matrix.rows / tp_size * tp_rank, matrix.rows / tp_size);
    case NemoCut::kColumns:
      return columnsOf(matrix, matrix.cols / tp_size * tp_rank, matrix.cols / tp_size);
    case NemoCut::kHalves: {
      const int64_t half = matrix.rows / 2;
      return stacked({shardOf(rowsOf(matrix, 0, half), NemoCut::kRows, tp_rank, tp_size),
                      shardOf(rowsOf(matrix, half, half), NemoCut::kRows, tp_rank, tp_size)});
    }
  }
  throw std::logic_error("unknown cut");
}

std::vector<std::pair<std::string, std::vector<TestTensor>>> nemoCheckpoints(
    const std::vector<std::vector<NemoTensor>>& layers, const std::vector<NemoTensor>& first,
    const std::vector<NemoTensor>& last, int32_t tp_size, int32_t pp_size) {
  std::vector<std::pair<std::string, std::vector<TestTensor>>> checkpoints;
  const size_t in_stage = layers.size() / static_cast<size_t>(pp_size);
  for (int32_t tp = 0; tp < tp_size; ++tp) {
    for (int32_t pp = 0; pp < pp_size; ++pp) {
      std::vector<TestTensor> tensors;
      const auto add = [&](const NemoTensor& tensor, size_t layer) {
        std::string name = tensor.name;
        if (const size_t at = name.find("{layer}"); at != std::string::npos) name.replace(at, 7, std::to_string(layer));
        tensors.push_back(shardOf(tensor.matrix, tensor.cut, tp, tp_size).named(name));
      };
      if (pp == 0) {
        for (const NemoTensor& tensor : first) add(tensor, 0);
      }
      for (size_t layer = 0; layer < in_stage; ++layer) {
        for (const NemoTensor& tensor : layers[static_cast<size_t>(pp) * in_stage + layer]) add(tensor, layer);
      }
      if (pp == pp_size - 1) {
        for (const NemoTensor& tensor : last) add(tensor, 0);
      }
      const std::string directory = pp_size > 1   ? fmt::format("tp_rank_{:02d}_pp_rank_{:03d}/", tp, pp)
                                    : tp_size > 1 ? fmt::format("mp_rank_{:02d}/", tp)
                                                  : "";
      checkpoints.emplace_back(directory + "model_weights.ckpt", std::move(tensors));
    }
  }
  return checkpoints;
}

}  // namespace chorus::test
