// chorus bench adapters: measures the delay that adapter loading causes to running streams and to waiting requests.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchAdapters(CLI::App& bench);

}  // namespace chorus
