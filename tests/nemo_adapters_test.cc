// An adapter answers the same as a NeMo archive, in either variant and cut over any ranks, as its PEFT directory, and
// as the tensors that lora-convert makes of either.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "convert/lora_convert.h"
#include "executor_runs.h"
#include "formats/safetensors.h"
#include "nemo_files.h"
#include "random_llama.h"
#include "runtime/lora_files.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRank = 4;
constexpr double kAlpha = 6;

struct LowRank {
  NemoMatrix a, b;
};
// The modules of a layer, fused as NeMo fuses them: qkv with rows in the order q, k, v, and gate_up.
using LayerLora = std::map<std::string, LowRank>;

LowRank randomLowRank(int64_t in, int64_t out, std::mt19937_64& rng) {
  std::normal_distribution<float> normal;
  const auto fill = [&](int64_t rows, int64_t cols) {
    NemoMatrix matrix = {rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
    // Multiples of 1/64 are exact in every float type.
    for (float& value : matrix.values) value = std::round(normal(rng) * 16) / 64;
    return matrix;
  };
  return {fill(kRank, in), fill(out, kRank)};
}

std::vector<LayerLora> randomLora(const RandomLlama& model, std::mt19937_64& rng) {
  const int64_t q = model.heads * model.head_size, kv = model.kv_heads * model.head_size;
  std::vector<LayerLora> layers;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    layers.push_back({{"qkv", randomLowRank(model.hidden, q + 2 * kv, rng)},
                      {"dense", randomLowRank(q, model.hidden, rng)},
                      {"gate_up", randomLowRank(model.hidden, 2 * model.mlp, rng)},
                      {"down", randomLowRank(model.mlp, model.hidden, rng)}});
  }
  return layers;
}

void writePeft(const std::vector<LayerLora>& layers, const fs::path& dir) {
  fs::create_directories(dir);
  const std::map<std::string, std::string> names = {{"qkv", "self_attn.qkv_proj"},
                                                    {"dense", "self_attn.o_proj"},
                                                    {"gate_up", "mlp.gate_up_proj"},
                                                    {"down", "mlp.down_proj"}};
  const Json config = {{"peft_type", "LORA"},
                       {"r", kRank},
                       {"lora_alpha", kAlpha},
                       {"target_modules", {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}}};
  writeFileAtomically(dir / "adapter_config.json", config.dump());
  std::map<std::string, const NemoMatrix*> tensors;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const auto& [name, module] : layers[layer]) {
      const std::string prefix = fmt::format("base_model.model.model.layers.{}.{}.lora_", layer, names.at(name));
      tensors[prefix + "A.weight"] = &module.a;
      tensors[prefix + "B.weight"] = &module.b;
    }
  }
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const auto& [name, matrix] : tensors)
    declarations.push_back({name, DType::kFloat32, {matrix->rows, matrix->cols}});
  SafetensorsWriter writer(dir / "adapter_model.safetensors", declarations);
  for (const auto& [name, matrix] : tensors) writer.write(name, 0, std::as_bytes(std::span(matrix->values)));
  writer.finish();
}

std::string adapterConfig(const RandomLlama& model, bool fused, int32_t tp_size, int32_t pp_size) {
  return fmt::format(
      "mcore_gpt: true\nnum_layers: {}\nhidden_size: {}\nnum_attention_heads: {}\nnum_query_groups: {}\nkv_channels: "
      "{}\n"
      "ffn_hidden_size: {}\nactivation: fast-swiglu\ntensor_model_parallel_size: {}\npipeline_model_parallel_size: {}\n"
      "peft:\n  peft_scheme: lora\n  lora_tuning:\n    target_modules:\n    - all\n    adapter_dim: {}\n    alpha: {}\n"
      "    variant: {}\n",
      model.layers, model.hidden, model.heads, model.kv_heads, model.head_size, model.mlp, tp_size, pp_size, kRank,
      kAlpha, fused ? "nemo" : "canonical");
}

std::string nemoArchive(const RandomLlama& model, const std::vector<LayerLora>& layers, bool fused, int32_t tp_size,
                        int32_t pp_size) {
  const int64_t q = model.heads * model.head_size, kv = model.kv_heads * model.head_size;
  std::vector<std::vector<NemoTensor>> tensors;
  for (const LayerLora& layer : layers) {
    std::vector<NemoTensor>& of_layer = tensors.emplace_back();
    const auto add = [&](const std::string& name, const NemoMatrix& a, NemoCut cut_a, const NemoMatrix& b,
                         NemoCut cut_b) {
      of_layer.push_back({"model.decoder.layers.{layer}." + name + ".linear_in.weight", a, cut_a});
      of_layer.push_back({"model.decoder.layers.{layer}." + name + ".linear_out.weight", b, cut_b});
    };
    const std::string attention = "self_attention.adapter_layer.", mlp = "mlp.adapter_layer.";
    const LowRank &qkv = layer.at("qkv"), &gate_up = layer.at("gate_up");
    if (fused) {
      add(attention + "lora_kqv_adapter", qkv.a, NemoCut::kRows,
          byKvGroup(qkv.b, model.heads, model.kv_heads, model.head_size), NemoCut::kRows);
      add(mlp + "lora_hto4h_adapter", gate_up.a, NemoCut::kRows, gate_up.b, NemoCut::kHalves);
    } else {
      const std::string unfused = attention + "lora_unfused_kqv_adapter.";
      add(unfused + "q_adapter", qkv.a, NemoCut::kRows, rowsOf(qkv.b, 0, q), NemoCut::kRows);
      add(unfused + "k_adapter", qkv.a, NemoCut::kRows, rowsOf(qkv.b, q, kv), NemoCut::kRows);
      add(unfused + "v_adapter", qkv.a, NemoCut::kRows, rowsOf(qkv.b, q + kv, kv), NemoCut::kRows);
      const std::string halves = mlp + "lora_unfused_hto4h_adapter.";
      add(halves + "gate_adapter", gate_up.a, NemoCut::kRows, rowsOf(gate_up.b, 0, model.mlp), NemoCut::kRows);
      add(halves + "up_adapter", gate_up.a, NemoCut::kRows, rowsOf(gate_up.b, model.mlp, model.mlp), NemoCut::kRows);
    }
    const LowRank &dense = layer.at("dense"), &down = layer.at("down");
    add(attention + "lora_dense_attention_adapter", dense.a, NemoCut::kColumns, dense.b, NemoCut::kRows);
    add(mlp + "lora_4htoh_adapter", down.a, NemoCut::kColumns, down.b, NemoCut::kRows);
  }
  return TestNemo{adapterConfig(model, fused, tp_size, pp_size), nemoCheckpoints(tensors, {}, {}, tp_size, pp_size)}
      .build();
}

class NemoAdapters : public testing::Test {
 protected:
  NemoAdapters() {
    model_.layers = 4;
    model_.hidden = 32;  // divisible by the ranks, as Megatron's must be
    fillWeights(model_, rng_);
    writeModel(model_, root_.path() / "model");
    layers_ = randomLora(model_, rng_);
  }

  // An adapter's directory with the archive.
  fs::path directory(const std::string& name, const std::string& archive) {
    fs::create_directories(root_.path() / name);
    writeFileAtomically(root_.path() / name / "some name.nemo", archive);
    return root_.path() / name;
  }
  std::vector<int32_t> prompt() {
    std::vector<int32_t> tokens(11);
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng_() % static_cast<uint64_t>(model_.vocab));
    return tokens;
  }

  TempDir root_;
  std::mt19937_64 rng_{7};
  RandomLlama model_;
  std::vector<LayerLora> layers_;
};

TEST_F(NemoAdapters, AnswerAsTheirPeftDirectory) {
  const fs::path peft = root_.path() / "peft";
  writePeft(layers_, peft);
  std::vector<fs::path> adapters = {peft};
  for (const bool fused : {true, false}) {
    for (const auto& [tp, pp] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}}) {
      const std::string name = fmt::format("{}_tp{}_pp{}", fused ? "fused" : "unfused", tp, pp);
      const std::string archive = nemoArchive(model_, layers_, fused, tp, pp);
      adapters.push_back(directory(name, archive));
      adapters.push_back(directory(name + "_gzip", gzipped(archive)) / "some name.nemo");
    }
  }
  const auto executor =
      openExecutor(testEngine(root_.path() / "model", DType::kFloat32), executor::ExecutorConfig(), adapters);
  const std::vector<int32_t> tokens = prompt();
  std::vector<executor::Request> requests = {greedyRequest(tokens, 8, std::nullopt)};
  for (size_t i = 0; i < adapters.size(); ++i) requests.push_back(greedyRequest(tokens, 8, i));
  for (size_t i = 0; i < adapters.size(); ++i) {
    convertLora(adapters[i], root_.path() / "tensors", DType::kFloat32);
    const LoraTensors tensors = readLoraFiles(root_.path() / "tensors");
    executor::Request request = greedyRequest(tokens, 8, std::nullopt);
    request.setLoraConfig(executor::LoraConfig(1000 + i, tensors.weights, tensors.config));
    requests.push_back(request);
  }
  const std::vector<RunAnswer> answers = runTogether(*executor, requests);
  EXPECT_NE(answers[0].logits_hash, answers[1].logits_hash) << "the adapter changes nothing";
  for (size_t i = 2; i < answers.size(); ++i) {
    const size_t adapter = (i - 1) % adapters.size();
    SCOPED_TRACE(adapters[adapter].string() + (i > adapters.size() ? " converted" : ""));
    EXPECT_EQ(answers[i].tokens, answers[1].tokens);
    ASSERT_EQ(answers[i].generation_logits.size(), answers[1].generation_logits.size());
    for (size_t j = 0; j < answers[i].generation_logits.size(); ++j) {
      ASSERT_NEAR(answers[i].generation_logits[j], answers[1].generation_logits[j], 1e-4);
    }
  }
}

TEST_F(NemoAdapters, RunAndInspectTakeThem) {
  const fs::path peft = root_.path() / "peft";
  writePeft(layers_, peft);
  const fs::path nemo = directory("nemo", nemoArchive(model_, layers_, true, 2, 1));
  const fs::path engine = testEngine(root_.path() / "model", DType::kFloat32);
  writeFileAtomically(root_.path() / "prompts.csv", "1,2,3\n1,2,3\n1,2,3\n");
  const CommandResult run = runChorus({"run",
                                       "--engine_dir",
                                       engine,
                                       "--input_file",
                                       root_.path() / "prompts.csv",
                                       "--max_output_len",
                                       "12",
                                       "--end_id",
                                       "-1",
                                       "--lora_ckpt_source",
                                       "nemo",
                                       "--lora_dir",
                                       peft,
                                       nemo,
                                       nemo / "some name.nemo",
                                       "--lora_task_uids",
                                       "0",
                                       "1",
                                       "2",
                                       "--output_csv",
                                       root_.path() / "out.csv"});
  ASSERT_EQ(run.status, 0) << run.errors;
  const std::string out = readFile(root_.path() / "out.csv", 1 << 16);
  const std::string first = out.substr(0, out.find('\n') + 1);
  EXPECT_EQ(out, first + first + first);

  const CommandResult inspected = runChorus({"inspect", nemo, "--base", root_.path() / "model", "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.errors << inspected.out;
  EXPECT_THAT(inspected.out, testing::HasSubstr("NeMo adapter"));
  EXPECT_THAT(inspected.out, testing::HasSubstr("mlp_gate_up"));
  const CommandResult file = runChorus({"inspect", nemo / "some name.nemo"});
  EXPECT_EQ(file.status, 0) << file.errors;
  writeFileAtomically(nemo / "second.nemo", "");
  const CommandResult two = runChorus({"inspect", nemo});
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.errors, testing::HasSubstr("second.nemo and some name.nemo"));
}

}  // namespace
}  // namespace chorus::test
