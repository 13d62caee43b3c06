// chorus bench kernels: every variant of every op beside the machine's roofs.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchKernels(CLI::App& bench);

}  // namespace chorus
