// Reads the prompts of `chorus run` from token files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// csv: one prompt per line, token ids separated by commas. npy: int32 or int64 [n, longest], padded right with -1. Text
// files (txt) are not read here. Throws Error that names file and line or row; an empty prompt is an error.
std::vector<std::vector<int32_t>> readTokenFile(const std::filesystem::path& path);
// Like readTokenFile, from bytes in memory; `source` names them in errors.
std::vector<std::vector<int32_t>> parseTokenCsv(std::string_view text, const std::string& source);
std::vector<std::vector<int32_t>> parseTokenNpy(std::span<const std::byte> bytes, const std::string& source);

}  // namespace chorus
