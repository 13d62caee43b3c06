// Makes the weight files of goldens that store a description of their weights instead of the values
// (tests/oracle/hashed_weights.py).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace chorus::test {

// The values of one tensor, which `text` identifies: center + k * scale, with an integer k from -1020 to 1020.
std::vector<float> hashedValues(const std::string& text, size_t count, double center, double scale);

// Writes every file that weights.json in `golden` describes to the same path beneath `output`, whose directories must
// exist.
void writeHashedWeights(const std::filesystem::path& golden, const std::filesystem::path& output);

}  // namespace chorus::test
