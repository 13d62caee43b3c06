// Token files of `chorus run`: prompts in, generated tokens and logits out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// csv: one prompt a line, token ids separated by commas. npy: int32 or int64 [n, longest], padded right with -1.
// txt is text and not read here. Throws Error that names file and line or row; an empty prompt is an error.
std::vector<std::vector<int32_t>> readTokenFile(const std::filesystem::path& path);
// The same of bytes in memory; source names them in errors.
std::vector<std::vector<int32_t>> parseTokenCsv(std::string_view text, const std::string& source);
std::vector<std::vector<int32_t>> parseTokenNpy(std::span<const std::byte> bytes, const std::string& source);

// int32 [n, 1, max_output_len]: generated tokens, then -1.
void writeTokensNpy(const std::filesystem::path& path, const std::vector<std::vector<int32_t>>& rows,
                    int64_t max_output_len);
// One line a row, comma-separated.
void writeTokensCsv(const std::filesystem::path& path, const std::vector<std::vector<int32_t>>& rows);
// float32 [n, vocab]; a row that failed is NaN.
void writeLogitsNpy(const std::filesystem::path& path, const std::vector<std::vector<float>>& rows, int64_t vocab);

// float32 [n, 1, max_output_len], 0 after a row's end.
void writeLogProbsNpy(const std::filesystem::path& path, const std::vector<std::vector<float>>& rows,
                      int64_t max_output_len);
// float32 [n, 1].
void writeCumLogProbsNpy(const std::filesystem::path& path, const std::vector<float>& rows);

}  // namespace chorus
