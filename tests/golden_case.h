// Reads a golden of tests/goldens: a tiny model with adapters, prompts, and the oracle's answers to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace chorus {

// Prints a dtype's name in GoogleTest messages.
inline void PrintTo(DType dtype, std::ostream* out) { *out << dtypeName(dtype); }

}  // namespace chorus

namespace chorus::test {

struct GoldenRow {
  std::optional<size_t> adapter;  // index into GoldenCase::adapters; nullopt: the base
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;  // the greedy continuation
  int64_t first_position = 0;   // position of the first row of logits
  std::vector<float> logits;    // [prompt + tokens - 1 - first_position, vocab]: the last row chose the last token

  // The input of a teacher-forced pass: the prompt and all tokens but the last.
  std::vector<int32_t> fed() const;
};

struct GoldenCase {
  std::string name;
  DType dtype = DType::kFloat32;  // the oracle's weights were rounded to it
  std::filesystem::path directory;
  std::vector<std::string> adapters;
  std::vector<GoldenRow> rows;
  int64_t vocab_size = 0;

  std::filesystem::path adapterDirectory(size_t adapter) const { return directory / "adapters" / adapters[adapter]; }
};

inline constexpr DType kGoldenDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// The converter's error, after the file's name, when it shards the golden's model over tp_size ranks: it names the
// first size that does not divide. Empty if all sizes do.
std::string cutRefusal(const GoldenCase& golden, int32_t tp_size);

// Every golden that a family's manifest.json lists.
std::vector<std::string> goldenNames();
GoldenCase loadGolden(const std::string& name, DType dtype);

// Returns for each token of the row the margin of its logit over the second best.
std::vector<float> tokenMargins(const GoldenRow& row, int64_t vocab_size);

}  // namespace chorus::test
