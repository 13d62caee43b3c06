#include "cli/bench/bench_adapters.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/backend_flags.h"
#include "cli/bench/adapter_churn.h"
#include "cli/bench/adapter_directories.h"
#include "cli/bench/percentiles.h"
#include "cli/flag_values.h"

namespace chorus {
namespace {

struct BenchAdaptersArgs {
  std::string engine_dir, adapters_dir, json, isa, backend = "cpu", log_level = "warning";
  AdapterChurn work;
  int interval_ms = 250, passes = 3, threads = 0;
  double seconds = 8, cache_adapters = 8;
};

Json runJson(const char* kind, const ChurnTimes& times) {
  return {{"adapters", kind},
          {"between_tokens_ms", distributionJson(distributionOf(times.between), 1e3)},
          {"first_token_ms", distributionJson(distributionOf(times.first), 1e3)}};
}

void printRun(const char* kind, const ChurnTimes& times) {
  const Distribution between = distributionOf(times.between), first = distributionOf(times.first);
  std::printf("%-8s %10.1f %10.1f %10.1f %10.1f %12.1f %10.1f %10.1f\n", kind, between.p50 * 1e3, between.p90 * 1e3,
              between.p99 * 1e3, between.max * 1e3, first.p50 * 1e3, first.p90 * 1e3, first.max * 1e3);
  std::fflush(stdout);
}

void runAdapters(const BenchAdaptersArgs& args) {
  initLogging(args.log_level);
  const auto directories = adapterDirectories(args.adapters_dir);
  // Warm adapters fill half of the cache. The others are used in turn, and there are enough of them that each has been
  // evicted before its next use.
  const auto warm_count = std::max<size_t>(1, static_cast<size_t>(args.cache_adapters / 2));
  const size_t least = warm_count + static_cast<size_t>(args.cache_adapters) + 1;
  if (directories.size() < least) {
    fail(ErrorCode::kInvalidArgument, "--adapters {}: {} adapters; at least {} are needed to keep them cold",
         args.adapters_dir, directories.size(), least);
  }
  executor::ExecutorConfig config;
  config.setNumThreads(args.threads);
  config.setBackend(args.backend);
  config.setIsa(checkedIsa(args.isa, args.backend));
  config.getKvCacheConfigRef().setEnableBlockReuse(false);
  const auto file_bytes = [](const std::filesystem::path& dir) {
    uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) bytes += entry.file_size();
    return static_cast<double>(bytes);
  };
  executor::PeftCacheConfig cache;
  cache.setHostCacheSize(static_cast<size_t>(args.cache_adapters * file_bytes(directories.front())));
  config.setPeftCacheConfig(cache);
  executor::Executor executor(args.engine_dir, executor::ModelType::kDECODER_ONLY, config);
  std::vector<executor::IdType> warm_tasks, cold_tasks;
  for (size_t i = 0; i < directories.size(); ++i) {
    executor.registerAdapter(i + 1, directories[i]);
    (i < warm_count ? warm_tasks : cold_tasks).push_back(i + 1);
  }

  AdapterChurn work = args.work;
  work.interval = std::chrono::milliseconds(args.interval_ms);
  work.duration = std::chrono::milliseconds(static_cast<int64_t>(args.seconds * 1e3));
  std::mt19937 rng(20250317);
  size_t next_warm = 0, next_cold = 0;
  AdapterChurn warm_up = work;
  warm_up.duration = work.interval * static_cast<int64_t>(2 * warm_count);
  std::vector<ChurnTimes> warm, cold;
  Json runs = Json::array();
  std::printf("%-8s %10s %10s %10s %10s %12s %10s %10s\n", "adapters", "itl p50", "p90", "p99", "max ms", "ttft p50",
              "p90", "max ms");
  for (int pass = 0; pass < args.passes; ++pass) {
    runChurn(executor, warm_up, warm_tasks, next_warm, rng);
    warm.push_back(runChurn(executor, work, warm_tasks, next_warm, rng));
    printRun("warm", warm.back());
    runs.push_back(runJson("warm", warm.back()));
    cold.push_back(runChurn(executor, work, cold_tasks, next_cold, rng));
    printRun("cold", cold.back());
    runs.push_back(runJson("cold", cold.back()));
  }
  const ChurnTargets targets;
  const ChurnResult result = bestOf(warm, cold);
  const double ratio = result.cold_between_p99 / result.warm_between_p99;
  std::printf(
      "between tokens, p99, best runs: %.1f ms while loading, %.1f ms without: %.2f x (target: at most %.2f x)\n",
      result.cold_between_p99 * 1e3, result.warm_between_p99 * 1e3, ratio, targets.between_ratio);
  std::printf(
      "first token, median, best runs: cold %.1f ms, warm %.1f ms (target: at most %.1f ms, 2 steps of %.1f ms "
      "and 150 ms more than warm)\n",
      result.cold_first * 1e3, result.warm_first * 1e3, result.coldFirstTarget(targets) * 1e3, result.step * 1e3);
  if (args.json.empty()) return;
  const Json report = {{"version", CHORUS_VERSION},
                       {"threads", args.threads > 0 ? args.threads : availableCores()},
                       {"runs", runs},
                       {"between_tokens_p99_ratio", ratio},
                       {"cold_first_token_ms", result.cold_first * 1e3},
                       {"cold_first_token_target_ms", result.coldFirstTarget(targets) * 1e3}};
  writeFileAtomically(args.json, report.dump(1) + "\n");
}

}  // namespace

void addBenchAdapters(CLI::App& bench) {
  auto args = std::make_shared<BenchAdaptersArgs>();
  CLI::App* command = bench.add_subcommand(
      "adapters",
      "Measure how much loading adapters slows running streams, and how long a request for a cold adapter waits");
  command->add_option("--engine_dir", args->engine_dir, "Engine directory")->required();
  command->add_option("--adapters", args->adapters_dir, "Directory of PEFT adapter directories")->required();
  command->add_option("--streams", args->work.streams, "Streams of the base model")
      ->capture_default_str()
      ->check(inRange(1, 1 << 10));
  command->add_option("--interval_ms", args->interval_ms, "Milliseconds between two requests for adapters")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  command->add_option("--prompt", args->work.prompt, "Tokens of an adapter's prompt")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  command->add_option("--new", args->work.new_tokens, "Tokens generated by an adapter's request")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  command->add_option("--cache", args->cache_adapters, "Adapters that the cache holds")
      ->capture_default_str()
      ->check(inRange(2.0, 1e6));
  command->add_option("--seconds", args->seconds, "Seconds of each run")
      ->capture_default_str()
      ->check(inRange(0.1, 3600.0));
  command
      ->add_option("--passes", args->passes, "Runs with warm and as many with cold adapters, of which the best count")
      ->capture_default_str()
      ->check(inRange(1, 1000));
  command->add_option("--threads", args->threads, "0: all cores")->capture_default_str()->check(inRange(0, 1024));
  addBackendFlags(*command, args->backend, args->isa);
  command->add_option("--json,--output_json", args->json, "Write the figures here");
  command->add_option("--log_level", args->log_level, "trace|debug|info|warning|error|off")->capture_default_str();
  command->callback([args] { runAdapters(*args); });
}

}  // namespace chorus
