// chorus bench throughput and chorus bench latency: the executor path beside the machine's roofs.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchThroughput(CLI::App& bench);
void addBenchLatency(CLI::App& bench);

}  // namespace chorus
