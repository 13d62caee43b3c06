#include "cli/bench/bench_executor.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <utility>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/backend_flags.h"
#include "cli/bench/adapter_directories.h"
#include "cli/bench/roof.h"
#include "cli/bench/throughput.h"
#include "cli/flag_values.h"
#include "engine/engine.h"
#include "kernels/default_isa.h"

namespace chorus {
namespace {

struct BenchExecutorArgs {
  std::string engine_dir, adapters_dir, lora_storage = "model", json, isa, backend = "cpu", log_level = "warning";
  std::vector<int> batches, mixed{0};
  int prompt = 128, new_tokens = 32, threads = 0, passes = 5, warmup = 2, roof_mib = 2048;
};

// Bytes of A and B at the engine's dtype, or as integers with their scales.
size_t adapterBytes(const std::filesystem::path& dir, const Engine& engine, executor::LoraStorage storage) {
  const Adapter adapter = readAdapterOf(engine, dir);
  size_t elements = 0, scales = 0;
  for (const AdapterModule& module : adapter.modules) {
    elements += static_cast<size_t>(module.rank * (module.in + module.out));
    scales += static_cast<size_t>(module.rank + module.out);
  }
  if (storage == executor::LoraStorage::kINT8) return elements + scales * sizeof(float);
  return elements * dtypeSize(engine.config().dtype);
}

// Measurements of one combination of batch and adapters.
struct WorkResult {
  ExecutorWork work;
  std::vector<TokenTimes> passes;
  double step_bytes = 0;
  Roof before, after, roof;  // `roof` has the better of the two for each value
};

using OnResult = std::function<void(const WorkResult&)>;

// Starts an executor of the engine with room for the largest combination and measures every combination on it.
void measureAll(const BenchExecutorArgs& args, const OnResult& on_result) {
  const auto isa = checkedIsa(args.isa, args.backend);
  const auto directories =
      firstAdapterDirectories(args.adapters_dir, *std::max_element(args.mixed.begin(), args.mixed.end()));
  const auto engine = Engine::load(args.engine_dir);
  executor::ExecutorConfig config;
  config.setNumThreads(args.threads);
  config.setBackend(args.backend);
  config.setIsa(isa);
  const int largest = *std::max_element(args.batches.begin(), args.batches.end());
  if (largest > engine->buildConfig().max_batch_size) {
    fail(ErrorCode::kInvalidArgument, "--batch {}: the engine was built with --max_batch_size {}", largest,
         engine->buildConfig().max_batch_size);
  }
  const int length = (args.prompt + args.new_tokens + 1 + 63) / 64 * 64 + 64;
  config.getKvCacheConfigRef().setMaxTokens(std::max(largest * length, engine->buildConfig().max_seq_len));
  executor::PeftCacheConfig adapters;
  adapters.setHostCacheSize(size_t{4} << 30);
  if (args.lora_storage == "int8") adapters.setLoraStorage(executor::LoraStorage::kINT8);
  config.setPeftCacheConfig(adapters);
  executor::Executor executor(args.engine_dir, executor::ModelType::kDECODER_ONLY, config);
  std::printf("%s\n", executor.getMemoryUse().table.c_str());
  std::vector<size_t> adapter_bytes;
  for (const auto& dir : directories) {
    executor.registerAdapter(static_cast<executor::IdType>(adapter_bytes.size() + 1), dir);
    adapter_bytes.push_back(adapterBytes(dir, *engine, adapters.getLoraStorage()));
  }
  const auto roof = [&] { return measureRoof(args.threads, args.roof_mib, productIsa(args.isa, *engine)); };
  std::set<std::pair<int, int>> measured;
  for (const int mixed : args.mixed) {
    for (const int batch : args.batches) {
      const ExecutorWork work{batch, args.prompt, args.new_tokens, std::min(mixed, batch)};
      if (!measured.emplace(work.batch, work.adapters).second) continue;
      WorkResult result{.work = work, .before = roof()};
      result.passes = runPasses(executor, work, args.warmup, args.passes);
      result.after = roof();
      keepBetter(result.roof, result.before);
      keepBetter(result.roof, result.after);
      result.step_bytes = stepBytes(args.engine_dir, work, adapter_bytes);
      on_result(result);
      std::fflush(stdout);
    }
  }
}

Json rowJson(const WorkResult& measured) {
  const ExecutorWork& work = measured.work;
  return {{"batch", work.batch},
          {"prompt", work.prompt},
          {"new", work.new_tokens},
          {"adapters", work.adapters},
          {"step_bytes", measured.step_bytes},
          {"read_gb_per_s", readRates(measured.before, measured.after)},
          {"matmul_tflops", productRates(measured.before, measured.after)}};
}

void writeReport(const BenchExecutorArgs& args, const Roof& roof, const Json& results) {
  printRoof(roof);
  if (args.json.empty()) return;
  const Json report = {{"version", CHORUS_VERSION},
                       {"threads", args.threads > 0 ? args.threads : availableCores()},
                       {"isa", args.isa.empty() ? isaName(defaultIsa()) : std::string_view(args.isa)},
                       {"roof",
                        {{"read_gb_per_s", roof.read_bytes_per_s / 1e9},
                         {"matmul_tflops", roof.matmul_flops / 1e12},
                         {"fork_join_us", roof.fork_join_s * 1e6}}},
                       {"results", results}};
  writeFileAtomically(args.json, report.dump(1) + "\n");
}

void runThroughput(const BenchExecutorArgs& args) {
  initLogging(args.log_level);
  Json results = Json::array();
  Roof best;
  bool headed = false;
  measureAll(args, [&](const WorkResult& measured) {
    if (!std::exchange(headed, true)) {
      std::printf("%8s %8s %8s %8s %16s %16s %10s\n", "batch", "prompt", "new", "adapters", "context tok/s",
                  "generation tok/s", "roof share");
    }
    const ExecutorWork& work = measured.work;
    const ThroughputResult result = throughputOf(measured.passes, work);
    const double share =
        measured.step_bytes * result.generation_tokens_per_s / work.batch / measured.roof.read_bytes_per_s;
    std::printf("%8d %8d %8d %8d %16.1f %16.2f %9.1f%%\n", work.batch, work.prompt, work.new_tokens, work.adapters,
                result.context_tokens_per_s, result.generation_tokens_per_s, 100 * share);
    printMoved(measured.before, measured.after);
    Json row = rowJson(measured);
    row["context_tokens_per_s"] = result.context_tokens_per_s;
    row["generation_tokens_per_s"] = result.generation_tokens_per_s;
    row["share_of_read_roof"] = share;
    results.push_back(row);
    keepBetter(best, measured.roof);
  });
  writeReport(args, best, results);
}

void runLatency(const BenchExecutorArgs& args) {
  initLogging(args.log_level);
  Json results = Json::array();
  Roof best;
  bool headed = false;
  measureAll(args, [&](const WorkResult& measured) {
    if (!std::exchange(headed, true)) {
      std::printf("%6s %7s %6s %9s %-12s %10s %10s %10s %10s %10s\n", "batch", "prompt", "new", "adapters", "ms",
                  "mean", "p50", "p90", "p99", "max");
    }
    const ExecutorWork& work = measured.work;
    const LatencyResult result = latencyOf(measured.passes);
    const auto print = [&](const char* what, const Distribution& d) {
      std::printf("%6d %7d %6d %9d %-12s %10.3f %10.3f %10.3f %10.3f %10.3f\n", work.batch, work.prompt,
                  work.new_tokens, work.adapters, what, d.mean * 1e3, d.p50 * 1e3, d.p90 * 1e3, d.p99 * 1e3,
                  d.max * 1e3);
    };
    print("first token", result.first);
    print("step", result.step);
    printMoved(measured.before, measured.after);
    Json row = rowJson(measured);
    row["first_token_ms"] = distributionJson(result.first, 1e3);
    row["step_ms"] = distributionJson(result.step, 1e3);
    if (result.step.count > 0) {
      const double share = measured.step_bytes / result.step.p50 / measured.roof.read_bytes_per_s;
      std::printf("%44s %.1f%% of the read roof\n", "median step", 100 * share);
      row["share_of_read_roof"] = share;
    }
    results.push_back(row);
    keepBetter(best, measured.roof);
  });
  writeReport(args, best, results);
}

void addFlags(CLI::App& command, BenchExecutorArgs& args) {
  command.add_option("--engine_dir", args.engine_dir, "Engine directory")->required();
  command.add_option("--batch", args.batches, "Requests at once")
      ->delimiter(',')
      ->capture_default_str()
      ->check(inRange(1, 1 << 16));
  command.add_option("--prompt", args.prompt, "Tokens of each prompt")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  command.add_option("--new", args.new_tokens, "Tokens generated by each request after the first")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  command.add_option("--adapters", args.adapters_dir, "Directory of PEFT adapter directories");
  addLoraStorageFlag(command, args.lora_storage);
  command.add_option("--mixed", args.mixed, "Distinct adapters over the requests of a batch")
      ->delimiter(',')
      ->capture_default_str()
      ->check(inRange(0, 1 << 16));
  command.add_option("--passes", args.passes, "Measured passes")->capture_default_str()->check(inRange(1, 1000));
  command.add_option("--warmup", args.warmup, "Passes that run first and are not measured")
      ->capture_default_str()
      ->check(inRange(0, 1000));
  command.add_option("--threads", args.threads, "0: all cores")->capture_default_str()->check(inRange(0, 1024));
  command.add_option("--roof_mib", args.roof_mib, "Memory that the read roof is measured on")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  addBackendFlags(command, args.backend, args.isa);
  command.add_option("--json,--output_json", args.json, "Write the figures here");
  command.add_option("--log_level", args.log_level, "trace|debug|info|warning|error|off")->capture_default_str();
}

}  // namespace

void addBenchThroughput(CLI::App& bench) {
  auto args = std::make_shared<BenchExecutorArgs>();
  args->batches = {1, 8, 32};
  CLI::App* command =
      bench.add_subcommand("throughput", "Context and generation tokens per second, medians over the passes");
  addFlags(*command, *args);
  command->callback([args] { runThroughput(*args); });
}

void addBenchLatency(CLI::App& bench) {
  auto args = std::make_shared<BenchExecutorArgs>();
  args->batches = {1};
  CLI::App* command =
      bench.add_subcommand("latency", "Time to the first token and of each step after it, percentiles over all passes");
  addFlags(*command, *args);
  command->callback([args] { runLatency(*args); });
}

}  // namespace chorus
