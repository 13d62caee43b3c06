// Makes the weight files of goldens that store a description of their weights instead of the values
// (tests/oracle/hashed_weights.py).
#pragma once

#include <filesystem>

namespace chorus::test {

// Writes every file that weights.json in `golden` describes to the same path beneath `output`, whose directories must
// exist.
void writeHashedWeights(const std::filesystem::path& golden, const std::filesystem::path& output);

}  // namespace chorus::test
