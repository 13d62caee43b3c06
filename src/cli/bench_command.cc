#include "cli/bench_command.h"

#include <CLI/CLI.hpp>
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
#include "base/thread_pool.h"
#include "cli/backend_flags.h"
#include "cli/bench_kernels.h"
#include "cli/throughput.h"
#include "engine/engine.h"
#include "kernels/default_isa.h"
#include "kernels/roofline.h"
#include "lora/source_peft.h"

namespace chorus {
namespace {

struct BenchArgs {
  std::string engine_dir, adapters_dir, output_json, isa, backend = "cpu", log_level = "warning";
  std::vector<int> batches{1, 8, 32}, mixed{0};
  int prompt = 128, new_tokens = 32, threads = 0, passes = 5, warmup = 2;
};

struct Roof {
  double read_bytes_per_s = 0;
  double matmul_flops = 0;
};

// On threads of its own, so that the executor's sleep meanwhile.
Roof measureRoof(const BenchArgs& args) {
  ThreadPool pool(args.threads > 0 ? args.threads : availableCores());
  return {measureReadBandwidth(pool), measureMatmulPeak(pool, args.isa.empty() ? defaultIsa() : requireIsa(args.isa))};
}

std::vector<std::filesystem::path> adapterDirectories(const std::string& dir) {
  std::vector<std::filesystem::path> found;
  if (dir.empty()) return found;
  if (!std::filesystem::is_directory(dir)) fail(ErrorCode::kNotFound, "--adapters {}: not a directory", dir);
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (std::filesystem::exists(entry.path() / "adapter_config.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Bytes of A and B at the engine's dtype.
size_t adapterBytes(const std::filesystem::path& dir, const Engine& engine) {
  const WeightTable table = engine.architecture().weightTable(engine.config());
  const Adapter adapter =
      readPeftAdapter(dir, dir.filename().string(), {engine.config(), table, engine.buildConfig().max_lora_rank});
  size_t elements = 0;
  for (const AdapterModule& module : adapter.modules) {
    elements += static_cast<size_t>(module.rank * (module.in + module.out));
  }
  return elements * dtypeSize(engine.config().dtype);
}

void runThroughput(const BenchArgs& args) {
  initLogging(args.log_level);
  const auto isa = checkedIsa(args.isa, args.backend);
  const auto directories = adapterDirectories(args.adapters_dir);
  const int most_adapters = *std::max_element(args.mixed.begin(), args.mixed.end());
  if (most_adapters > static_cast<int>(directories.size())) {
    fail(ErrorCode::kInvalidArgument, "--mixed {}: --adapters holds {} adapters", most_adapters, directories.size());
  }
  const auto engine = Engine::load(args.engine_dir);
  executor::ExecutorConfig config;
  config.numThreads = args.threads;
  config.backend = args.backend;
  config.isa = isa;
  const int largest = *std::max_element(args.batches.begin(), args.batches.end());
  if (largest > engine->buildConfig().max_batch_size) {
    fail(ErrorCode::kInvalidArgument, "--batch {}: the engine was built with --max_batch_size {}", largest,
         engine->buildConfig().max_batch_size);
  }
  const int length = (args.prompt + args.new_tokens + 1 + 63) / 64 * 64 + 64;
  config.kvCacheConfig.maxTokens = std::max(largest * length, engine->buildConfig().max_seq_len);
  config.peftCacheConfig = executor::PeftCacheConfig{.hostCacheSize = size_t{4} << 30};
  executor::Executor executor(args.engine_dir, executor::ModelType::kDECODER_ONLY, config);
  std::printf("%s\n", executor.getMemoryUse().table.c_str());
  std::vector<size_t> adapter_bytes;
  for (int i = 0; i < most_adapters; ++i) {
    const auto& dir = directories[static_cast<size_t>(i)];
    executor.registerAdapter(static_cast<executor::IdType>(i + 1), dir);
    adapter_bytes.push_back(adapterBytes(dir, *engine));
  }

  Json results = Json::array();
  Roof best;
  std::printf("%8s %8s %8s %8s %16s %16s %10s\n", "batch", "prompt", "new", "adapters", "context tok/s",
              "generation tok/s", "roof share");
  std::set<std::pair<int, int>> measured;
  for (const int mixed : args.mixed) {
    for (const int batch : args.batches) {
      const ThroughputWork work{batch, args.prompt, args.new_tokens, std::min(mixed, batch)};
      if (!measured.emplace(work.batch, work.adapters).second) continue;
      const Roof before = measureRoof(args);
      const ThroughputResult result = measureThroughput(executor, work, args.warmup, args.passes);
      const Roof after = measureRoof(args);
      const double read = std::max(before.read_bytes_per_s, after.read_bytes_per_s);
      const double share =
          stepBytes(args.engine_dir, work, adapter_bytes) * result.generation_tokens_per_s / batch / read;
      best.read_bytes_per_s = std::max(best.read_bytes_per_s, read);
      best.matmul_flops = std::max({best.matmul_flops, before.matmul_flops, after.matmul_flops});
      std::printf("%8d %8d %8d %8d %16.1f %16.2f %9.1f%%\n", batch, args.prompt, args.new_tokens, work.adapters,
                  result.context_tokens_per_s, result.generation_tokens_per_s, 100 * share);
      std::fflush(stdout);
      results.push_back({{"batch", batch},
                         {"prompt", args.prompt},
                         {"new", args.new_tokens},
                         {"adapters", work.adapters},
                         {"context_tokens_per_s", result.context_tokens_per_s},
                         {"generation_tokens_per_s", result.generation_tokens_per_s},
                         {"share_of_read_roof", share}});
    }
  }
  std::printf("roof: read %.1f GB/s, products %.3f TFLOP/s\n", best.read_bytes_per_s / 1e9, best.matmul_flops / 1e12);
  if (!args.output_json.empty()) {
    const Json report = {
        {"roof", {{"read_gb_per_s", best.read_bytes_per_s / 1e9}, {"matmul_tflops", best.matmul_flops / 1e12}}},
        {"results", results}};
    writeFileAtomically(args.output_json, report.dump(1) + "\n");
  }
}
}  // namespace

void addBenchCommand(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure beside the machine's roofs");
  bench->require_subcommand(1);
  addBenchKernels(*bench);
  auto args = std::make_shared<BenchArgs>();
  CLI::App* throughput = bench->add_subcommand("throughput", "Context and generation tokens per second");
  throughput->add_option("--engine_dir", args->engine_dir, "Engine directory")->required();
  throughput->add_option("--batch", args->batches, "Requests at once")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  throughput->add_option("--prompt", args->prompt, "Tokens of each prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  throughput->add_option("--new", args->new_tokens, "Tokens generated by each request")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  throughput->add_option("--adapters", args->adapters_dir, "Directory of PEFT adapter directories");
  throughput->add_option("--mixed", args->mixed, "Distinct adapters over the requests of a batch")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 16));
  throughput->add_option("--passes", args->passes, "Measured passes, the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  throughput->add_option("--warmup", args->warmup, "Passes before them")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  throughput->add_option("--threads", args->threads, "0: all cores")->capture_default_str()->check(CLI::Range(0, 1024));
  addBackendFlags(*throughput, args->backend, args->isa);
  throughput->add_option("--output_json", args->output_json, "Write the figures here");
  throughput->add_option("--log_level", args->log_level, "trace|debug|info|warning|error|off")->capture_default_str();
  throughput->callback([args] { runThroughput(*args); });
}

}  // namespace chorus
