#include "cli/output_files.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/file.h"
#include "formats/npy.h"

namespace chorus {
namespace {

// Concatenates the rows, each padded with `fill` to `width`.
std::vector<float> filled(const std::vector<std::vector<float>>& rows, int64_t width, float fill) {
  std::vector<float> all(rows.size() * static_cast<size_t>(width), fill);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), all.begin() + static_cast<int64_t>(i) * width);
  }
  return all;
}

}  // namespace

void writeTokensNpy(const std::filesystem::path& path, const std::vector<std::vector<int32_t>>& rows,
                    int64_t max_output_len) {
  std::vector<int32_t> padded(rows.size() * static_cast<size_t>(max_output_len), -1);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), padded.begin() + static_cast<int64_t>(i) * max_output_len);
  }
  const int64_t shape[] = {static_cast<int64_t>(rows.size()), 1, max_output_len};
  writeFileAtomically(path, npyBytes(DType::kInt32, shape, padded.data()));
}

void writeTokensCsv(const std::filesystem::path& path, const std::vector<std::vector<int32_t>>& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(row[i]);
    text += '\n';
  }
  writeFileAtomically(path, text);
}

void writeLogitsNpy(const std::filesystem::path& path, const std::vector<std::vector<float>>& rows, int64_t vocab) {
  const std::vector<float> all = filled(rows, vocab, std::numeric_limits<float>::quiet_NaN());
  const int64_t shape[] = {static_cast<int64_t>(rows.size()), vocab};
  writeFileAtomically(path, npyBytes(DType::kFloat32, shape, all.data()));
}

void writeLogProbsNpy(const std::filesystem::path& path, const std::vector<std::vector<float>>& rows,
                      int64_t max_output_len) {
  const std::vector<float> all = filled(rows, max_output_len, 0.0f);
  const int64_t shape[] = {static_cast<int64_t>(rows.size()), 1, max_output_len};
  writeFileAtomically(path, npyBytes(DType::kFloat32, shape, all.data()));
}

void writeCumLogProbsNpy(const std::filesystem::path& path, const std::vector<float>& rows) {
  const int64_t shape[] = {static_cast<int64_t>(rows.size()), 1};
  writeFileAtomically(path, npyBytes(DType::kFloat32, shape, rows.data()));
}

}  // namespace chorus
