// Runs a golden's prompts as a user with a padded array does: `chorus run --input_file X.npy`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "chorus/request.h"
#include "golden_case.h"

namespace chorus::test {

struct PaddedAnswer {
  std::vector<int32_t> tokens;      // generated
  std::vector<float> first_logits;  // [vocab], at the last prompt position
};

// Returns one answer per request. Each request is greedy and uses one of the golden's adapters or none. Throws
// std::runtime_error with the program's standard error if it fails.
std::vector<PaddedAnswer> runPadded(const GoldenCase& golden, const std::vector<executor::Request>& requests,
                                    const std::filesystem::path& engine_dir, const std::string& backend,
                                    std::optional<Isa> isa);

}  // namespace chorus::test
