// A golden's prompts as a user with a padded array gives them: `chorus run --input_file X.npy`.
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
  std::vector<float> first_logits;  // [vocab], of the last prompt position
};

// One answer a request, which asks for tokens, greedily, with one of the golden's adapters. Throws
// std::runtime_error with what the program said when it fails.
std::vector<PaddedAnswer> runPadded(const GoldenCase& golden, const std::vector<executor::Request>& requests,
                                    const std::filesystem::path& engine_dir, const std::string& backend,
                                    std::optional<Isa> isa);

}  // namespace chorus::test
