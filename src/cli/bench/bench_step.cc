#include "cli/bench/bench_step.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/backend_flags.h"
#include "cli/bench/adapter_directories.h"
#include "cli/bench/percentiles.h"
#include "cli/bench/roof.h"
#include "cli/flag_values.h"
#include "engine/adapter_values.h"
#include "engine/rank_group.h"
#include "kernels/default_isa.h"
#include "kernels/timed_backend.h"

namespace chorus {
namespace {

struct BenchStepArgs {
  std::string engine_dir, adapters_dir, lora_storage = "model", json, isa;
  int batch = 8, prompt = 128, past = 0, mixed = 0, threads = 0, steps = 5, roof_mib = 2048;
  int adapters() const { return std::min(mixed, batch); }
  int threadCount() const { return threads > 0 ? threads : availableCores(); }
};

// The two steps that are measured.
struct Steps {
  StepInput context, generation;
  std::vector<std::vector<int32_t>> tables;  // the block tables of the sequences
};

struct TimedOp {
  OpTime work;                  // of one step; its time is not used
  std::vector<double> seconds;  // of each step
};
struct TimedStep {
  std::vector<TimedOp> ops;
  std::vector<double> seconds;  // of each whole step
  std::vector<double> between;  // of each step, what its ops did not take
};

using Adapters = std::vector<std::shared_ptr<const PreparedAdapter>>;

// Throws an Error that names the flag if the engine cannot run the steps.
void checkLimits(const BenchStepArgs& args, const std::vector<std::shared_ptr<const Engine>>& ranks) {
  const BuildConfig& build = ranks.front()->buildConfig();
  if (ranks.size() > 1) {
    fail(ErrorCode::kUnsupported, "{}: has {} ranks; steps of one rank can be measured", args.engine_dir, ranks.size());
  }
  if (args.batch > build.max_batch_size) {
    fail(ErrorCode::kInvalidArgument, "--batch {}: the engine was built with --max_batch_size {}", args.batch,
         build.max_batch_size);
  }
  if (int64_t{args.batch} * args.prompt > build.max_num_tokens) {
    fail(ErrorCode::kInvalidArgument,
         "--prompt {}: {} prompts have {} tokens, and a step has at most {} (--max_num_tokens of the engine)",
         args.prompt, args.batch, int64_t{args.batch} * args.prompt, build.max_num_tokens);
  }
  if (args.past + args.prompt >= build.max_seq_len) {
    fail(ErrorCode::kInvalidArgument,
         "--past {} and --prompt {}: with the token that is generated, a sequence has at most {} tokens", args.past,
         args.prompt, build.max_seq_len);
  }
  if (!args.adapters_dir.empty() && args.mixed == 0) {
    fail(ErrorCode::kInvalidArgument, "--adapters without --mixed, the number of adapters to use");
  }
}

// Sequence i uses adapter i mod adapters.size(). Each sequence has its own blocks in each KV group.
Steps makeSteps(const BenchStepArgs& args, int32_t vocab, int32_t groups, int32_t blocks, const Adapters& adapters) {
  Steps steps;
  std::mt19937 rng(20240229);
  std::uniform_int_distribution<int32_t> token(0, vocab - 1);
  // Adds the next rows of sequence i.
  const auto add = [&](StepInput& input, int32_t i, int32_t rows, int32_t first_position, BlockTables tables) {
    const auto begin = static_cast<int32_t>(input.tokens.size());
    for (int32_t t = 0; t < rows; ++t) input.tokens.push_back(token(rng));
    input.sequences.push_back({begin, rows, first_position, tables});
    input.logits_rows.push_back(begin + rows - 1);
    if (adapters.empty()) return;
    const size_t a = static_cast<size_t>(i) % adapters.size();
    if (a == input.adapters.size()) input.adapters.push_back({adapters[a]->id, adapters[a]->vocab_size, {}});
    input.adapters[a].ranges.push_back({begin, begin + rows});
  };
  for (int32_t i = 0; i < args.batch; ++i) {
    std::vector<int32_t>& table = steps.tables.emplace_back(static_cast<size_t>(groups * blocks));
    for (int32_t b = 0; b < groups * blocks; ++b) table[static_cast<size_t>(b)] = i * groups * blocks + b;
    const BlockTables tables({table.data(), static_cast<size_t>(blocks)}, blocks);
    add(steps.context, i, args.prompt, args.past, tables);
    add(steps.generation, i, 1, args.past + args.prompt, tables);
  }
  return steps;
}

TimedStep timeStep(int count, RankGroup& ranks, TimedBackend& backend, const StepInput& input) {
  TimedStep result;
  ranks.run(input);  // the first step allocates memory
  backend.take();
  for (int i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ranks.run(input);
    result.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    result.between.push_back(result.seconds.back());
    const std::vector<OpTime> ops = backend.take();
    result.ops.resize(ops.size());  // equal steps have equal ops
    for (size_t op = 0; op < ops.size(); ++op) {
      result.ops[op].work = ops[op];
      result.ops[op].seconds.push_back(ops[op].seconds);
      result.between.back() -= ops[op].seconds;
    }
  }
  return result;
}

void printOp(const TimedOp& op, double seconds, double whole, const Roof& roof) {
  const OpTime& work = op.work;
  const std::string columns = work.in > 0 ? fmt::format("{} -> {}", work.in, work.out) : "";
  std::string of_roof = fmt::format("{:>9} {:>9} {:>8}", "-", "-", "-");
  if (work.bytes > 0 || work.flops > 0) {
    const double read = work.bytes / seconds / roof.read_bytes_per_s;
    const double products = work.flops / seconds / roof.matmul_flops;
    of_roof = fmt::format("{:9.2f} {:9.1f} {:7.1f}% {}", work.bytes / seconds / 1e9, work.flops / seconds / 1e9,
                          100 * std::max(read, products), read > products ? "read" : "products");
  }
  fmt::print("{:<19} {:<15} {:5} {:10.3f} {:7.1f}% {}\n", work.op, columns, work.calls, seconds * 1e3,
             100 * seconds / whole, of_roof);
}

Json report(const char* phase, const TimedStep& step, const Roof& before, const Roof& after) {
  Roof roof = before;
  keepBetter(roof, after);
  const double whole = medianOf(step.seconds), between = medianOf(step.between);
  Json rows = Json::array();
  fmt::print("{:<19} {:<15} {:>5} {:>10} {:>8} {:>9} {:>9} {:>8} {}\n", phase, "columns", "calls", "ms", "of step",
             "GB/s", "GFLOP/s", "of roof", "");
  for (const TimedOp& op : step.ops) {
    const double seconds = medianOf(op.seconds);
    printOp(op, seconds, whole, roof);
    const OpTime& work = op.work;
    rows.push_back({{"op", work.op},
                    {"in", work.in},
                    {"out", work.out},
                    {"calls", work.calls},
                    {"median_s", seconds},
                    {"bytes", work.bytes},
                    {"flops", work.flops}});
  }
  fmt::print("{:<41} {:10.3f} {:7.1f}%\n", "between the ops", between * 1e3, 100 * between / whole);
  fmt::print("{:<41} {:10.3f}\n", "whole step", whole * 1e3);
  std::fflush(stdout);
  printMoved(before, after);
  return {{"phase", phase},
          {"median_s", whole},
          {"between_ops_s", between},
          {"read_gb_per_s", readRates(before, after)},
          {"matmul_tflops", productRates(before, after)},
          {"ops", rows}};
}

void runBenchStep(const BenchStepArgs& args) {
  initLogging("warning");
  checkedIsa(args.isa);
  const auto directories = firstAdapterDirectories(args.adapters_dir, args.mixed);
  const auto engines = RankGroup::loadEngines(args.engine_dir);
  checkLimits(args, engines);
  const Engine& engine = *engines.front();
  SessionOptions options;
  const KvCacheShape cache = Session::kvCache(engine.config(), engine.buildConfig(), options);
  const auto groups = static_cast<int32_t>(cache.windows.size());
  const int32_t block_tokens = engine.buildConfig().tokens_per_block;
  const int32_t blocks = (args.past + args.prompt + block_tokens) / block_tokens;
  options.kv_blocks = int64_t{args.batch} * groups * blocks;
  if (args.lora_storage == "int8") options.lora_format = int8LoraFormat();
  BackendOptions backend{.threads = args.threads};
  if (!args.isa.empty()) backend.isa = requireIsa(args.isa);
  TimedBackend* timed = nullptr;
  RankGroup ranks(engines, backend, options, [&](std::unique_ptr<Backend> inner, int32_t) {
    auto timing = std::make_unique<TimedBackend>(std::move(inner));
    timed = timing.get();
    return timing;
  });
  Adapters adapters;
  for (int i = 0; i < args.adapters(); ++i) {
    adapters.push_back(ranks.prepareAdapter(readAdapterOf(engine, directories[static_cast<size_t>(i)])));
  }
  const Steps steps = makeSteps(args, engine.config().vocab_size, groups, blocks, adapters);

  const auto roof = [&] { return measureRoof(args.threads, args.roof_mib, productIsa(args.isa, engine)); };
  // The steps run on a thread of their own, because a thread that is placed on a NUMA node stays there and would
  // measure the limits of that node only.
  const auto time = [&](const StepInput& input) {
    return std::async(std::launch::async,
                      [&] {
                        ranks.placeStepThread();
                        return timeStep(args.steps, ranks, *timed, input);
                      })
        .get();
  };
  Json phases = Json::array();
  Roof best, before = roof();
  for (const auto& [phase, input] :
       {std::pair("context", &steps.context), std::pair("generation", &steps.generation)}) {
    const TimedStep step = time(*input);
    const Roof after = roof();
    phases.push_back(report(phase, step, before, after));
    keepBetter(best, before);
    keepBetter(best, after);
    before = after;
  }
  printRoof(best);
  if (args.json.empty()) return;
  const Json document = {{"version", CHORUS_VERSION},
                         {"threads", args.threadCount()},
                         {"isa", args.isa.empty() ? isaName(defaultIsa()) : std::string_view(args.isa)},
                         {"batch", args.batch},
                         {"prompt", args.prompt},
                         {"past", args.past},
                         {"adapters", args.adapters()},
                         {"lora_storage", args.lora_storage},
                         {"steps", phases}};
  writeFileAtomically(args.json, document.dump(1) + "\n");
}

}  // namespace

void addBenchStep(CLI::App& bench) {
  auto args = std::make_shared<BenchStepArgs>();
  CLI::App* command = bench.add_subcommand(
      "step", "The time of every op of two steps: one with all prompts, and one that generates a token for each");
  command->add_option("--engine_dir", args->engine_dir, "Engine directory, of one rank")->required();
  command->add_option("--batch", args->batch, "Sequences")->capture_default_str()->check(inRange(1, 1 << 16));
  command->add_option("--prompt", args->prompt, "Random tokens of each sequence in the first step")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  command->add_option("--past", args->past, "Tokens that each sequence has in the KV cache before the first step")
      ->capture_default_str()
      ->check(inRange(0, 1 << 20));
  command->add_option("--adapters", args->adapters_dir, "Directory of PEFT adapter directories");
  command->add_option("--mixed", args->mixed, "Distinct adapters over the sequences")
      ->capture_default_str()
      ->check(inRange(0, 1 << 16));
  addLoraStorageFlag(*command, args->lora_storage);
  command->add_option("--steps", args->steps, "Steps of each kind; medians are printed")
      ->capture_default_str()
      ->check(inRange(1, 1000));
  command->add_option("--threads", args->threads, "0: all cores")->capture_default_str()->check(inRange(0, 1024));
  command->add_option("--roof_mib", args->roof_mib, "Memory that the read roof is measured on")
      ->capture_default_str()
      ->check(inRange(1, 1 << 20));
  addIsaFlag(*command, args->isa);
  command->add_option("--json", args->json, "Write the figures here");
  command->callback([args] { runBenchStep(*args); });
}

}  // namespace chorus
