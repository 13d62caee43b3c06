// chorus bench kernels: measures every variant of every op and compares it with the machine's roofs.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchKernels(CLI::App& bench);

}  // namespace chorus
