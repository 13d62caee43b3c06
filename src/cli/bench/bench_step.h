// chorus bench step: the time of a single step of the network, op by op, beside the machine's roofs.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchStep(CLI::App& bench);

}  // namespace chorus
