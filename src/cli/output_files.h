// Writers of the results of `chorus run`: generated tokens, logits, log probabilities.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace chorus {

// int32 [n, 1, max_output_len]: generated tokens, padded with -1.
void writeTokensNpy(const std::filesystem::path& path, const std::vector<std::vector<int32_t>>& rows,
                    int64_t max_output_len);
// Writes one line per row, with values separated by commas.
void writeTokensCsv(const std::filesystem::path& path, const std::vector<std::vector<int32_t>>& rows);
// float32 [n, vocab]; NaN in rows of failed prompts.
void writeLogitsNpy(const std::filesystem::path& path, const std::vector<std::vector<float>>& rows, int64_t vocab);

// float32 [n, 1, max_output_len], padded with 0.
void writeLogProbsNpy(const std::filesystem::path& path, const std::vector<std::vector<float>>& rows,
                      int64_t max_output_len);
// float32 [n, 1].
void writeCumLogProbsNpy(const std::filesystem::path& path, const std::vector<float>& rows);

}  // namespace chorus
