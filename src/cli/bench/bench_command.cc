#include "cli/bench/bench_command.h"

#include <CLI/CLI.hpp>

#include "cli/bench/bench_adapters.h"
#include "cli/bench/bench_executor.h"
#include "cli/bench/bench_kernels.h"
#include "cli/bench/bench_serve.h"
#include "cli/bench/bench_step.h"

namespace chorus {

void addBenchCommand(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure beside the machine's roofs");
  bench->require_subcommand(1);
  addBenchLatency(*bench);
  addBenchThroughput(*bench);
  addBenchAdapters(*bench);
  addBenchServe(*bench);
  addBenchStep(*bench);
  addBenchKernels(*bench);
}

}  // namespace chorus
