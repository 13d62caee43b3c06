// chorus bench throughput, chorus bench latency: measure the executor path and compare it with the machine's roofs.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchThroughput(CLI::App& bench);
void addBenchLatency(CLI::App& bench);

}  // namespace chorus
