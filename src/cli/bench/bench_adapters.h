// chorus bench adapters: what loading adapters costs those who stream meanwhile, and those who wait for it.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

void addBenchAdapters(CLI::App& bench);

}  // namespace chorus
