// chorus_step_probe make DIR
// chorus_step_probe ops|count ISA ENGINE_DIR [ADAPTERS_DIR]
//
// make:  writes a small random model to DIR/base and adapters to DIR/adapters, the same in every run
// ops:   prints the ops of each fixed step
// count: runs each step in chorusMeasuredStep, whose instructions callgrind counts, and then calls chorusStepDone, at
//        which callgrind dumps the counts
// ops and count print the names of the steps in order. Without ADAPTERS_DIR the steps that use adapters are left out.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "engine/rank_group.h"
#include "fixed_steps.h"
#include "lora/adapter.h"
#include "lora/peft_reader.h"
#include "random_llama.h"
#include "recording_backend.h"

namespace {
volatile int steps_done = 0;
}

extern "C" {
[[gnu::noinline]] void chorusMeasuredStep(chorus::RankGroup& ranks, const chorus::StepInput& input) {
  ranks.run(input);
  steps_done = steps_done + 1;
}
[[gnu::noinline]] void chorusStepDone() { steps_done = steps_done + 0; }
}

namespace chorus {
namespace {

// The model is large enough that kernels take most of a step, and small enough to run under callgrind.
void makeModel(const std::filesystem::path& dir) {
  test::RandomLlama model{
      .layers = 2, .hidden = 256, .heads = 8, .kv_heads = 4, .head_size = 32, .mlp = 704, .vocab = 512};
  std::mt19937_64 random(20240229);
  test::fillWeights(model, random);
  test::writeModel(model, dir / "base");
  for (int i = 0; i < 3; ++i) {
    test::writeRandomAdapter(model, /*dora=*/i == 2, random, dir / "adapters" / ("lora-" + std::to_string(i)));
  }
}

std::vector<std::shared_ptr<const PreparedAdapter>> prepareAll(const RankGroup& ranks, const std::string& dir) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (std::filesystem::exists(entry.path() / "adapter_config.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  if (found.size() < 3) fail(ErrorCode::kInvalidArgument, "{}: fewer than three adapters", dir);
  const Engine& engine = ranks.engine();
  const WeightTable table = engine.architecture().weightTable(engine.config());
  std::vector<std::shared_ptr<const PreparedAdapter>> prepared;
  for (const auto& path : found) {
    prepared.push_back(ranks.prepareAdapter(
        readPeftAdapter(path, path.filename().string(), {engine.config(), table, engine.buildConfig().max_lora_rank})));
  }
  return prepared;
}

void run(const std::string& mode, const std::string& isa, const std::string& dir, const std::string& adapters_dir) {
  initLogging("warning");
  const auto engines = RankGroup::loadEngines(dir);
  if (engines.size() != 1) fail(ErrorCode::kInvalidArgument, "{}: more than one rank", dir);
  const BackendOptions backend{.threads = 1, .isa = requireIsa(isa), .spin_us = 0};
  const SessionOptions options{.max_batch_size = 16,
                               .max_num_tokens = kFixedRows,
                               .tokens_per_block = kFixedBlockTokens,
                               .kv_blocks = kFixedBlocks};
  RecordingBackend* recorder = nullptr;
  const WrapBackend record = [&](std::unique_ptr<Backend> inner, int32_t) {
    auto recording = std::make_unique<RecordingBackend>(std::move(inner));
    recorder = recording.get();
    return recording;
  };
  RankGroup ranks(engines, backend, options, mode == "ops" ? record : nullptr);
  const auto adapters = adapters_dir.empty() ? decltype(prepareAll(ranks, dir)){} : prepareAll(ranks, adapters_dir);
  const auto steps = fixedSteps(engines.front()->config().vocab_size, adapters);
  if (mode == "count") {
    for (const FixedStep& step : steps) {
      ranks.run(step.input);  // unmeasured, so that one-time initialisation is not counted
      chorusMeasuredStep(ranks, step.input);
      chorusStepDone();
      std::printf("%s\n", step.name.c_str());
    }
    return;
  }
  recorder->take();
  for (const FixedStep& step : steps) {
    ranks.run(step.input);
    std::printf("%s\n", step.name.c_str());
    for (const std::string& line : folded(recorder->take())) std::printf("  %s\n", line.c_str());
  }
  std::printf("variants\n");
  for (const Variant& variant : recorder->used().all()) std::printf("  %s\n", variantText(variant).c_str());
}

}  // namespace
}  // namespace chorus

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "make" && argc == 3) {
      chorus::makeModel(argv[2]);
    } else if ((mode == "ops" || mode == "count") && (argc == 4 || argc == 5)) {
      chorus::run(mode, argv[2], argv[3], argc == 5 ? argv[4] : "");
    } else {
      std::fprintf(stderr, "usage: %s make DIR\n       %s ops|count ISA ENGINE_DIR [ADAPTERS_DIR]\n", argv[0], argv[0]);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}
