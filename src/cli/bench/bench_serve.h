// chorus bench serve: an open-loop load on any server of the OpenAI completions API.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchServe(CLI::App& bench);

}  // namespace chorus
