#include "cli/prompt_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "formats/npy.h"

namespace chorus {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;

template <typename T>
T elementAt(const NpyArray& array, int64_t i) {
  T value;
  std::memcpy(&value, array.data.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::vector<std::vector<int32_t>> parseTokenCsv(std::string_view text, const std::string& source) {
  std::vector<std::vector<int32_t>> rows;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::vector<int32_t> row;
    const char* at = line.data();
    const char* end = line.data() + line.size();
    while (at < end) {
      while (at < end && (*at == ' ' || *at == ',' || *at == '\r')) ++at;
      if (at == end) break;
      int32_t token = 0;
      const auto [next, error] = std::from_chars(at, end, token);
      if (error != std::errc() || token < 0) {
        fail(ErrorCode::kInvalidArgument, "{}: line {}: not a list of token ids", source, number);
      }
      row.push_back(token);
      at = next;
    }
    if (row.empty()) fail(ErrorCode::kInvalidArgument, "{}: line {}: the prompt is empty", source, number);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::vector<int32_t>> parseTokenNpy(std::span<const std::byte> bytes, const std::string& source) {
  const NpyArray array = parseNpy(bytes, source);
  if (array.shape.size() != 2 || (array.dtype != DType::kInt32 && array.dtype != DType::kInt64)) {
    fail(ErrorCode::kInvalidArgument, "{}: need int32 [prompts, longest]", source);
  }
  std::vector<std::vector<int32_t>> rows;
  for (int64_t i = 0; i < array.shape[0]; ++i) {
    std::vector<int32_t> row;
    bool padding = false;
    for (int64_t j = 0; j < array.shape[1]; ++j) {
      const int64_t at = i * array.shape[1] + j;
      const int64_t token =
          array.dtype == DType::kInt32 ? elementAt<int32_t>(array, at) : elementAt<int64_t>(array, at);
      if (token < -1 || token > std::numeric_limits<int32_t>::max() || (padding && token != -1)) {
        fail(ErrorCode::kInvalidArgument, "{}: row {} column {}: {} is no token id (padding is -1, on the right)",
             source, i, j, token);
      }
      padding = token == -1;
      if (!padding) row.push_back(static_cast<int32_t>(token));
    }
    if (row.empty()) fail(ErrorCode::kInvalidArgument, "{}: row {}: the prompt is empty", source, i);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::vector<int32_t>> readTokenFile(const std::filesystem::path& path) {
  auto rows = path.extension() == ".npy" ? parseTokenNpy(MappedFile(path).bytes(), path.string())
                                         : parseTokenCsv(readFile(path, kMaxFileBytes), path.string());
  if (rows.empty()) fail(ErrorCode::kInvalidArgument, "{}: no prompts", path.string());
  return rows;
}

}  // namespace chorus
