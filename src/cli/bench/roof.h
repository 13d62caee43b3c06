// The machine's limits around a measurement, so that a figure can be given as a share of them.
#pragma once

#include <limits>
#include <string>

#include "base/cpu_features.h"
#include "base/json.h"
#include "engine/engine.h"

namespace chorus {

struct Roof {
  double read_bytes_per_s = 0;
  double matmul_flops = 0;
  double fork_join_s = std::numeric_limits<double>::infinity();
};

// threads: 0 for all cores. read_mib: memory that is read. Uses its own thread pool, so that the threads of an engine
// sleep meanwhile. Takes a few seconds. Throws as measureReadBandwidth does.
Roof measureRoof(int threads, int read_mib, Isa isa);
// Sets each limit of `best` to the better of the two.
void keepBetter(Roof& best, const Roof& roof);
// Prints a warning that figures are unreliable when a limit changed between two measurements.
void printMoved(const Roof& before, const Roof& after);

void printRoof(const Roof& roof);
// Return [before, after] for a JSON report: the rates of reading in GB/s, and those of products in TFLOP/s.
Json readRates(const Roof& before, const Roof& after);
Json productRates(const Roof& before, const Roof& after);

// The instruction set that multiplies the engine's linears. isa: the one asked for; empty: the machine's best.
Isa productIsa(const std::string& isa, const Engine& engine);

}  // namespace chorus
