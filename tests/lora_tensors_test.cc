// Adapters sent as tensors of a request, normalised and converted, answer as their PEFT directories do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "convert/dora_normalize.h"
#include "convert/lora_convert.h"
#include "executor_runs.h"
#include "formats/safetensors.h"
#include "golden_case.h"
#include "random_llama.h"
#include "runtime/lora_files.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using executor::Request;

constexpr std::array kStorage = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr uint64_t kFirstSeed = 515;
constexpr int kModels = 6;

// The tensors of a PEFT directory. A DoRA directory is normalised first.
LoraTensors tensorsOf(const fs::path& adapter, const fs::path& base, DType storage) {
  const TempDir scratch;
  fs::path source = adapter;
  if (readJsonFile(adapter / "adapter_config.json").value("use_dora", false)) {
    source = scratch.path() / "normalised";
    normaliseDora(adapter, base, source, false);
  }
  EXPECT_FALSE(convertLora(source, scratch.path() / "tensors", storage).lacks_norms);
  return readLoraFiles(scratch.path() / "tensors");
}

// Requests with the same prompts for each adapter: by directory, and by tensors under separate task ids.
struct Requests {
  std::vector<Request> by_directory, by_tensors;
};
Requests requestsOf(const std::vector<fs::path>& adapters, const fs::path& base, int64_t vocab, DType storage,
                    std::mt19937_64& rng) {
  Requests requests;
  for (size_t i = 0; i < adapters.size(); ++i) {
    std::vector<int32_t> prompt(1 + rng() % 20);
    for (int32_t& token : prompt) token = static_cast<int32_t>(rng() % static_cast<uint64_t>(vocab));
    requests.by_directory.push_back(greedyRequest(prompt, 8, i));
    const LoraTensors tensors = tensorsOf(adapters[i], base, storage);
    Request request = greedyRequest(prompt, 8, std::nullopt);
    request.setLoraConfig(executor::LoraConfig(1000 + i, tensors.weights, tensors.config));
    requests.by_tensors.push_back(request);
  }
  return requests;
}

TEST(LoraTensors, TensorsOfRandomAdaptersAnswerLikeTheirDirectories) {
  const TempDir root;
  int exact = 0, all = 0;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kModels; ++seed) {
    std::mt19937_64 rng(seed);
    RandomLlama model = randomLlamaShape(rng);
    fillWeights(model, rng);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + model.describe());
    const fs::path dir = root.path() / std::to_string(seed);
    writeModel(model, dir);
    std::vector<fs::path> adapters;
    for (int i = 0; i < 4; ++i) {
      adapters.push_back(dir / ("adapter" + std::to_string(i)));
      writeRandomAdapter(model, i % 2 == 1, rng, adapters.back());
    }
    const auto executor = openExecutor(testEngine(dir, DType::kFloat32), executor::ExecutorConfig(), adapters);
    for (const DType storage : kStorage) {
      SCOPED_TRACE(dtypeName(storage));
      const Requests requests = requestsOf(adapters, dir, model.vocab, storage, rng);
      const auto expected = runTogether(*executor, requests.by_directory);
      const auto answers = runTogether(*executor, requests.by_tensors);
      for (size_t i = 0; i < adapters.size(); ++i) {
        SCOPED_TRACE(adapters[i].filename().string());
        EXPECT_EQ(answers[i].tokens, expected[i].tokens);
        // A scale of 2 rounds nothing, and A and B are exact in every type. Magnitudes are exact only in float32.
        const Json config = readJsonFile(adapters[i] / "adapter_config.json");
        const bool is_exact = !config.at("use_rslora") && (!config.at("use_dora") || storage == DType::kFloat32);
        if (is_exact) {
          EXPECT_EQ(answers[i].logits_hash, expected[i].logits_hash);
        }
        exact += is_exact;
        ++all;
      }
    }
  }
  EXPECT_GT(exact, 10);
  EXPECT_GT(all, exact + 10);
}

// An adapter of a layer's fused linears. Its values are sixteenths, which with its scale of 2 are exact in every type.
void writeFusedAdapter(const RandomLlama& model, std::mt19937_64& rng, const fs::path& dir) {
  constexpr int64_t kRank = 3;
  const std::pair<const char*, int64_t> fused[] = {
      {"self_attn.qkv_proj.", (model.heads + 2 * model.kv_heads) * model.head_size},
      {"mlp.gate_up_proj.", 2 * model.mlp}};
  std::map<std::string, std::vector<int64_t>> shapes;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    for (const auto& [module, out] : fused) {
      const std::string key = "base_model.model.model.layers." + std::to_string(layer) + "." + module;
      shapes[key + "lora_A.weight"] = {kRank, model.hidden};
      shapes[key + "lora_B.weight"] = {out, kRank};
    }
  }
  fs::create_directories(dir);
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const auto& [name, shape] : shapes) declarations.push_back({name, DType::kFloat32, shape});
  SafetensorsWriter writer(dir / "adapter_model.safetensors", declarations);
  for (const auto& [name, shape] : shapes) {
    std::vector<float> values(static_cast<size_t>(shape[0] * shape[1]));
    for (float& value : values) value = static_cast<float>(static_cast<int>(rng() % 17) - 8) / 16;
    writer.write(name, 0, std::as_bytes(std::span(values)));
  }
  writer.finish();
  const Json config = {
      {"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 2 * kRank}, {"target_modules", {"qkv_proj", "gate_up_proj"}}};
  writeFileAtomically(dir / "adapter_config.json", config.dump());
}

TEST(LoraTensors, TensorsOfFusedLinearsGiveTheAdaptersBits) {
  const TempDir root;
  std::mt19937_64 rng(99);
  RandomLlama model = randomLlamaShape(rng);
  fillWeights(model, rng);
  writeModel(model, root.path() / "model");
  const std::vector<fs::path> adapters = {root.path() / "fused"};
  writeFusedAdapter(model, rng, adapters[0]);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto executor = openExecutor(testEngine(root.path() / "model", dtype), executor::ExecutorConfig(), adapters);
    for (const DType storage : kStorage) {
      const Requests requests = requestsOf(adapters, root.path() / "model", model.vocab, storage, rng);
      const auto by_tensors = runTogether(*executor, requests.by_tensors);
      EXPECT_EQ(hashOfAll(by_tensors), hashOfAll(runTogether(*executor, requests.by_directory))) << dtypeName(storage);
      executor::Request base = requests.by_tensors[0];
      base.setLoraConfig(executor::LoraConfig(1000));
      EXPECT_EQ(hashOfAll(runTogether(*executor, {base})), hashOfAll(by_tensors)) << "cached under its id";
    }
  }
}

// The expected tokens of the goldens are PEFT's. The engine has one rank, or two tensor-parallel ranks and two stages:
// the tensors are whole in both cases. Two models have experts (the modules moe_h_to_4h to moe_router, in Qwen2-MoE
// also mlp_router and shared_expert_*), whose DoRA the tensor form does not have.
TEST(LoraTensors, TensorsOfGoldensGiveTheOraclesTokensOnAnyRanks) {
  for (const char* name : {"plain", "tied_bias", "mixtral", "qwen2_moe"}) {
    GoldenCase golden = loadGolden(name, DType::kFloat32);
    const bool has_experts = readJsonFile(golden.directory / "config.json").contains("num_experts_per_tok");
    const auto has_tensors = [&](size_t adapter) {
      return !has_experts ||
             !readJsonFile(golden.adapterDirectory(adapter) / "adapter_config.json").value("use_dora", false);
    };
    std::erase_if(golden.rows, [&](const GoldenRow& row) { return row.adapter && !has_tensors(*row.adapter); });
    ASSERT_GE(golden.rows.size(), 5U);
    SCOPED_TRACE(name);
    for (const Cut& cut : {Cut{}, Cut{.tp_size = 2, .pp_size = 2}}) {
      SCOPED_TRACE(cut.name());
      const auto executor = openExecutor(testEngine(golden.directory, DType::kFloat32, testBuildConfig(), cut),
                                         executor::ExecutorConfig(), {});
      std::vector<LoraTensors> tensors;
      for (size_t i = 0; i < golden.adapters.size(); ++i) {
        tensors.push_back(has_tensors(i) ? tensorsOf(golden.adapterDirectory(i), golden.directory, DType::kFloat32)
                                         : LoraTensors());
      }
      std::vector<Request> requests;
      for (const GoldenRow& row : golden.rows) {
        Request request = greedyRequest(row.prompt, static_cast<int32_t>(row.tokens.size()), std::nullopt);
        if (row.adapter) {
          const LoraTensors& of = tensors[*row.adapter];
          request.setLoraConfig(executor::LoraConfig(*row.adapter, of.weights, of.config));
        }
        requests.push_back(request);
      }
      const auto answers = runTogether(*executor, requests);
      for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].tokens, golden.rows[i].tokens) << i;
      // The adapters are cached now, so that their ids suffice.
      for (Request& request : requests) {
        if (request.getLoraConfig()) {
          request.setLoraConfig(executor::LoraConfig(request.getLoraConfig()->getTaskId()));
        }
      }
      EXPECT_EQ(hashOfAll(runTogether(*executor, requests)), hashOfAll(answers));
    }
  }
}

// The directory's adapter_config.json says that it is normalised; otherwise the norms would divide its magnitudes
// twice.
TEST(LoraTensors, ANormalisedDirectoryAnswersAsTheAdapterItWasMadeOf) {
  const TempDir root;
  const GoldenCase plain = loadGolden("plain", DType::kFloat32);
  const fs::path adapter = plain.directory / "adapters/dora_r4_f32", normalised = root.path() / "normalised";
  normaliseDora(adapter, plain.directory, normalised, false);
  const auto executor =
      openExecutor(testEngine(plain.directory, DType::kFloat32), executor::ExecutorConfig(), {adapter, normalised});
  const auto answers = runTogether(*executor, {greedyRequest({1, 2, 3}, 8, 0), greedyRequest({1, 2, 3}, 8, 1)});
  EXPECT_EQ(answers[1].logits_hash, answers[0].logits_hash);
}

class LoraFiles : public testing::Test {
 protected:
  CommandResult runCommand(const std::vector<fs::path>& adapters, const fs::path& tokens) {
    writeFileAtomically(dir_.path() / "prompts.csv", "1,2,3\n4,5\n6\n");
    std::vector<std::string> arguments = {"run",
                                          "--engine_dir",
                                          testEngine(plain_.directory, DType::kFloat32),
                                          "--input_file",
                                          dir_.path() / "prompts.csv",
                                          "--max_output_len",
                                          "9",
                                          "--end_id",
                                          "-1",
                                          "--output_npy",
                                          tokens,
                                          "--lora_task_uids",
                                          "0",
                                          "1",
                                          "0",
                                          "--lora_dir"};
    arguments.insert(arguments.end(), adapters.begin(), adapters.end());
    return runChorus(arguments);
  }

  const GoldenCase plain_ = loadGolden("plain", DType::kFloat32);
  const TempDir dir_;
};

TEST_F(LoraFiles, RunTakesADirectoryOfThem) {
  const fs::path adapters = plain_.directory / "adapters", lora = dir_.path() / "lora", dora = dir_.path() / "dora";
  ASSERT_EQ(runChorus({"lora-convert", "-i", adapters / "qv_r3_f32", "-o", lora, "--storage-type", "float32"}).status,
            0);
  const fs::path normal = dir_.path() / "normal";
  const auto normalised =
      runChorus({"dora-normalize", "-i", adapters / "dora_r4_f32", "-b", plain_.directory, "-o", normal});
  ASSERT_EQ(normalised.status, 0) << normalised.errors;
  ASSERT_EQ(runChorus({"lora-convert", "-i", normal, "-o", dora, "--storage-type", "float32"}).status, 0);
  const auto expected = runCommand({adapters / "qv_r3_f32", adapters / "dora_r4_f32"}, dir_.path() / "expected.npy");
  ASSERT_EQ(expected.status, 0) << expected.errors;
  for (const auto& dirs : {std::vector<fs::path>{lora, dora}, {lora, adapters / "dora_r4_f32"}}) {
    const auto result = runCommand(dirs, dir_.path() / "tokens.npy");
    ASSERT_EQ(result.status, 0) << result.errors;
    EXPECT_EQ(readFile(dir_.path() / "tokens.npy", 10000), readFile(dir_.path() / "expected.npy", 10000));
  }
}

}  // namespace
}  // namespace chorus::test
