// Tests what the program reports about its kernels, and how the command line selects them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "base/cpu_features.h"
#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "golden_case.h"
#include "kernels/default_isa.h"
#include "kernels/registry.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

using testing::HasSubstr;

TEST(KernelCommands, BenchHasARowForEveryVariantOfThisMachine) {
  const TempDir dir;
  const auto file = dir.path() / "rows.json";
  const CommandResult result = runChorus({"bench", "kernels", "--small", "--min_time", "0", "--cold_mib", "1",
                                          "--roof_mib", "4", "--threads", "2", "--json", file.string()});
  ASSERT_EQ(result.status, 0) << result.errors;
  const Json report = readJsonFile(file);
  std::set<std::string> rows;
  for (const Json& row : report["rows"]) {
    EXPECT_GT(row["median_s"].get<double>(), 0.0);
    EXPECT_GT(row["gb_per_s"].get<double>(), 0.0);
    const std::string variant = row["op"].get<std::string>() + " " + row["variant"].get<std::string>();
    rows.insert(variant);
    rows.insert(variant + " " + row["dtype"].get<std::string>());
  }
  for (const Op op : kOps) {
    for (const Variant& variant : variantsOf(op)) {
      EXPECT_EQ(rows.count(variantText(variant)), isAvailable(variant) ? 1u : 0u) << variantText(variant);
    }
  }
  EXPECT_GT(report["roof"]["read_gb_per_s"].get<double>(), 0.0);
}

TEST(KernelCommands, BenchRunsTheRowsAskedFor) {
  const auto bench = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench", "kernels",    "--small", "--min_time", "0", "--cold_mib",
                                          "1",     "--roof_mib", "4",       "--threads",  "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runChorus(arguments);
  };
  const CommandResult scalar = bench({"--isa", "scalar", "--filter", "rms_norm"});
  EXPECT_EQ(scalar.status, 0) << scalar.errors;
  EXPECT_THAT(scalar.out, HasSubstr("\nrms_norm          scalar"));
  EXPECT_THAT(scalar.out, testing::Not(HasSubstr("linear")));
  EXPECT_THAT(scalar.out, testing::Not(HasSubstr("avx")));
  const CommandResult none = bench({"--filter", "no such row"});
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.errors, "chorus: error: --filter no such row: no row has this text\n");
}

// The figures of `chorus bench step` for the engine of a golden, without and with one adapter.
struct BenchStep {
  Json context, generation;

  BenchStep(const std::filesystem::path& engine, std::vector<std::string> more) {
    const TempDir dir;
    const auto file = dir.path() / "step.json";
    std::vector<std::string> arguments = {"bench",      "step", "--engine_dir", engine.string(),
                                          "--batch",    "3",    "--prompt",     "5",
                                          "--steps",    "2",    "--threads",    "2",
                                          "--roof_mib", "4",    "--json",       file.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = runChorus(arguments);
    EXPECT_EQ(result.status, 0) << result.errors;
    const Json steps = readJsonFile(file)["steps"];
    context = steps[0];
    generation = steps[1];
  }
  static double sum(const Json& phase, std::string_view op, const char* field) {
    double all = 0;
    for (const Json& row : phase["ops"]) all += row["op"] == op ? row[field].get<double>() : 0.0;
    return all;
  }
};

TEST(KernelCommands, BenchStepAccountsForTheWholeStep) {
  const GoldenCase golden = loadGolden(goldenNames().front(), DType::kFloat32);
  const auto dir = testEngine(golden.directory, golden.dtype);
  const auto engine = Engine::load(dir);
  const ModelConfig& config = engine->config();
  const BenchStep plain(dir, {});
  for (const Json& phase : {plain.context, plain.generation}) {
    double in_ops = 0;
    for (const Json& row : phase["ops"]) in_ops += row["median_s"].get<double>();
    // Medians of two steps are their means, so they add up.
    const double whole = phase["median_s"].get<double>();
    EXPECT_NEAR(in_ops + phase["between_ops_s"].get<double>(), whole, 1e-6 * whole);
    EXPECT_EQ(BenchStep::sum(phase, "attention", "calls"), config.num_hidden_layers);
    EXPECT_GT(BenchStep::sum(phase, "linear", "bytes"), 0.0);
  }
  const double heads = 4.0 * config.num_hidden_layers * config.num_attention_heads * config.head_size;
  EXPECT_EQ(BenchStep::sum(plain.context, "attention", "flops"), heads * 3 * (1 + 2 + 3 + 4 + 5));
  EXPECT_EQ(BenchStep::sum(plain.generation, "attention", "flops"), heads * 3 * 6);
  // The output head has one row for each prompt in both steps, all other linears have five in the context.
  const double head = 2.0 * 3 * config.hidden_size * config.vocab_size;
  EXPECT_EQ(BenchStep::sum(plain.context, "linear", "flops") - head,
            5 * (BenchStep::sum(plain.generation, "linear", "flops") - head));

  const std::string adapters = (golden.directory / "adapters").string();
  const BenchStep mixed(dir, {"--adapters", adapters, "--mixed", "1"});
  for (const char* work : {"flops", "bytes"}) {
    EXPECT_GT(BenchStep::sum(mixed.context, "linear", work), BenchStep::sum(plain.context, "linear", work)) << work;
  }
  const BenchStep eight(dir, {"--adapters", adapters, "--mixed", "1", "--lora_storage", "int8"});
  const auto bytesOfAdapter = [&](const BenchStep& step) {
    return BenchStep::sum(step.generation, "linear", "bytes") - BenchStep::sum(plain.generation, "linear", "bytes");
  };
  EXPECT_GT(bytesOfAdapter(eight), 0);
  EXPECT_LT(bytesOfAdapter(eight), bytesOfAdapter(mixed) / 2);
}

TEST(KernelCommands, BenchStepSaysWhatTheEngineCannotRun) {
  const GoldenCase golden = loadGolden(goldenNames().front(), DType::kFloat32);
  const auto dir = testEngine(golden.directory, golden.dtype);
  const auto refusal = [&](const std::string& flag, const std::string& value) {
    return runChorus({"bench", "step", "--engine_dir", dir.string(), flag, value}).errors;
  };
  EXPECT_EQ(refusal("--mixed", "2"), "chorus: error: --mixed 2: --adapters holds 0 adapters\n");
  const BuildConfig build = Engine::load(dir)->buildConfig();
  EXPECT_EQ(refusal("--batch", "9999"),
            fmt::format("chorus: error: --batch 9999: the engine was built with --max_batch_size {}\n",
                        build.max_batch_size));
  EXPECT_EQ(refusal("--prompt", "9999"),
            fmt::format("chorus: error: --prompt 9999: 8 prompts have 79992 tokens, and a step has at most {} "
                        "(--max_num_tokens of the engine)\n",
                        build.max_num_tokens));
  EXPECT_EQ(refusal("--past", "9999"),
            fmt::format("chorus: error: --past 9999 and --prompt 128: with the token that is generated, a sequence has "
                        "at most {} tokens\n",
                        build.max_seq_len));
  EXPECT_EQ(refusal("--adapters", (golden.directory / "adapters").string()),
            "chorus: error: --adapters without --mixed, the number of adapters to use\n");
}

TEST(KernelCommands, InspectNamesTheDefaults) {
  const CommandResult result = runChorus({"inspect", "--kernels"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const std::string best(isaName(defaultVariant(Op::kLinear, defaultIsa(), DType::kBFloat16).isa.value()));
  EXPECT_THAT(result.out, HasSubstr(fmt::format("\n{:<17} {:<9} {:<13} reference, ", "linear", "bfloat16", best)));
  for (const Op op : kOps) EXPECT_THAT(result.out, HasSubstr("\n" + std::string(opName(op)) + " "));
}

TEST(KernelCommands, UnknownNamesListThoseThatAre) {
  const std::string isas = "isa sse9: this machine runs " + availableIsaNames() + "\n";
  const std::string backends = "unknown backend gpu; use one of cpu, guarded, reference\n";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"run", "--max_output_len", "1"},
                                                  {"serve", "nowhere"},
                                                  {"bench", "throughput", "--engine_dir", "e"}}) {
    const auto with = [&](const std::string& flag, const std::string& value) {
      auto arguments = command;
      arguments.insert(arguments.end(), {flag, value});
      const CommandResult result = runChorus(arguments);
      EXPECT_EQ(result.status, 2);
      return result.errors;
    };
    EXPECT_EQ(with("--isa", "sse9"), "chorus: error: " + isas);
    EXPECT_EQ(with("--backend", "gpu"), "chorus: error: " + backends);
  }
}

TEST(KernelCommands, VariableStandsInForTheFlag) {
  const std::vector<std::string> bench = {"bench",      "kernels",  "--small",    "--min_time", "0",
                                          "--cold_mib", "1",        "--roof_mib", "4",          "--threads",
                                          "1",          "--filter", "rms_norm"};
  ::setenv("CHORUS_ISA", "sse9", 1);
  const CommandResult unknown = runChorus(bench);
  auto flagged = bench;
  flagged.insert(flagged.end(), {"--isa", "scalar"});
  const CommandResult flag_wins = runChorus(flagged);
  ::setenv("CHORUS_ISA", "scalar", 1);
  const CommandResult scalar = runChorus(bench);
  ::unsetenv("CHORUS_ISA");
  ::setenv("CHORUS_ISA", "sse9", 1);
  const CommandResult elsewhere = runChorus({"inspect", "--kernels"});
  ::unsetenv("CHORUS_ISA");
  EXPECT_EQ(elsewhere.status, 0) << "a command that does not compute: " << elsewhere.errors;
  EXPECT_THAT(unknown.errors, HasSubstr("isa sse9: this machine runs scalar"));
  EXPECT_EQ(flag_wins.status, 0) << flag_wins.errors;
  EXPECT_THAT(scalar.out, HasSubstr("rms_norm          scalar"));
  EXPECT_THAT(scalar.out, testing::Not(HasSubstr("reference")));
}

TEST(KernelCommands, RunAnswersTheSameOnTheGuardedBackend) {
  const GoldenCase golden = loadGolden(goldenNames().front(), DType::kFloat32);
  const TempDir dir;
  const auto prompts = dir.path() / "prompts.csv";
  writeFileAtomically(prompts, "1,2,3,4\n5,6\n");
  const auto engine = testEngine(golden.directory, golden.dtype).string();
  std::vector<std::string> answers;
  for (const std::string& backend : backendNames()) {
    const CommandResult result =
        runChorus({"run", "--engine_dir", engine, "--input_file", prompts.string(), "--max_output_len", "6", "--end_id",
                   "-1", "--backend", backend, "--threads", "2"});
    EXPECT_EQ(result.status, 0) << result.errors;
    answers.push_back(result.out);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]) << "greedy tokens of the reference";
}

}  // namespace
}  // namespace chorus::test
