#include "lora/nemo_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "formats/testing/nemo_test_file.h"
#include "lora/adapter_files.h"
#include "lora/testing/test_model.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kMost = size_t{1} << 30;
const std::string kLayer = "model.decoder.layers.0.";
const std::string kAttention = kLayer + "self_attention.adapter_layer.";
const std::string kMlp = kLayer + "mlp.adapter_layer.";

// A matrix whose values count up from `first`.
TestTensor matrix(const std::string& name, int64_t rows, int64_t columns, float first = 1) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  std::iota(values.begin(), values.end(), first);
  return {name, {rows, columns}, values};
}
// A matrix in which every value of row r is `first` + r.
TestTensor rowNumbers(const std::string& name, int64_t rows, int64_t columns, float first = 0) {
  TestTensor tensor{name, {rows, columns}, {}};
  for (int64_t r = 0; r < rows; ++r)
    tensor.values.insert(tensor.values.end(), static_cast<size_t>(columns), first + static_cast<float>(r));
  return tensor;
}

std::string onlyRank(const std::vector<TestTensor>& tensors, const std::string& config = "mcore_gpt: true\n") {
  return TestNemo{config, {{"model_weights.ckpt", tensors}}}.build();
}
NemoFiles parse(const std::string& archive) {
  const auto memory = std::make_shared<const std::string>(archive);
  return parseNemoFiles(std::as_bytes(std::span(*memory)), "f", kMost, memory);
}

std::vector<float> valuesOf(const TensorView& view) {
  std::vector<float> values(view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}
// The first value of each row.
std::vector<float> rowsOf(const TensorView& view) {
  const std::vector<float> values = valuesOf(view);
  std::vector<float> rows;
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(view.shape[1])) rows.push_back(values[i]);
  return rows;
}

// 4 query heads, 2 KV heads of size 1, MLP size 3.
constexpr NemoShape kShape = {4, 2, 1, 3};

NemoModule only(const std::string& archive) {
  const NemoFiles files = parse(archive);
  NemoModules read = readNemoModules(files, kShape);
  EXPECT_EQ(read.modules.size(), 1u);
  NemoModule module = read.modules.at(0);
  static std::vector<std::shared_ptr<const void>> kept;
  kept.push_back(files.memory);
  kept.insert(kept.end(), read.storage.begin(), read.storage.end());
  return module;
}
std::string refusalOf(const std::string& archive) {
  const std::string line = errorOf([&] { readNemoModules(parse(archive), kShape); });
  EXPECT_EQ(line.find('\n'), std::string::npos);
  return line;
}

TEST(NemoReaderTest, FusedQkvIsTakenFromTheOrderOfKvGroups) {
  const NemoModule module = only(onlyRank({matrix(kAttention + "lora_kqv_adapter.linear_in.weight", 2, 5),
                                           rowNumbers(kAttention + "lora_kqv_adapter.linear_out.weight", 8, 2)}));
  EXPECT_EQ(module.module_id, kAttnQkv);
  EXPECT_EQ(module.layer, 0);
  EXPECT_THAT(module.a.shape, ElementsAre(2, 5));
  EXPECT_THAT(valuesOf(module.a), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  // The groups are [0, 1 | 2 | 3] and [4, 5 | 6 | 7].
  EXPECT_THAT(rowsOf(module.b), ElementsAre(0, 1, 4, 5, 2, 6, 3, 7));
}

TEST(NemoReaderTest, NamesOfAllModules) {
  const std::pair<std::string, int32_t> names[] = {{"self_attention.lora_unfused_kqv_adapter.q_adapter", kAttnQ},
                                                   {"self_attention.lora_unfused_kqv_adapter.k_adapter", kAttnK},
                                                   {"self_attention.lora_unfused_kqv_adapter.v_adapter", kAttnV},
                                                   {"self_attention.lora_dense_attention_adapter", kAttnDense},
                                                   {"mlp.lora_unfused_hto4h_adapter.gate_adapter", kMlpHTo4H},
                                                   {"mlp.lora_unfused_hto4h_adapter.up_adapter", kMlpGate},
                                                   {"mlp.lora_4htoh_adapter", kMlp4HToH}};
  for (const std::string& before : std::vector<std::string>{"model.decoder.layers.7.", "model.module.decoder.layers.7.",
                                                            "model.language_model.encoder.layers.7.", "layers.7."}) {
    for (const auto& [name, id] : names) {
      for (const bool has_layer : {true, false}) {
        std::string full = before + name;
        if (has_layer) full.insert(full.find(".lora_"), ".adapter_layer");
        const NemoModule module =
            only(onlyRank({matrix(full + ".linear_in.weight", 1, 2), matrix(full + ".linear_out.weight", 3, 1)}));
        EXPECT_EQ(module.module_id, id) << full;
        EXPECT_EQ(module.layer, 7);
        EXPECT_EQ(module.name, full);
      }
    }
  }
}

TEST(NemoReaderTest, FusedMlpIsGatedIfItHasTwiceTheRows) {
  const std::string name = kMlp + "lora_hto4h_adapter";
  const auto archive = [&](int64_t rows) {
    return onlyRank({matrix(name + ".linear_in.weight", 2, 2), rowNumbers(name + ".linear_out.weight", rows, 2)});
  };
  EXPECT_EQ(only(archive(3)).module_id, kMlpHTo4H);
  const NemoModule gated = only(archive(6));
  EXPECT_EQ(gated.module_id, kMlpGateUp);
  EXPECT_THAT(rowsOf(gated.b), ElementsAre(0, 1, 2, 3, 4, 5));
}

std::string twoRanks(const std::vector<TestTensor>& first, const std::vector<TestTensor>& second) {
  return TestNemo{"tensor_model_parallel_size: 2\n",
                  {{"mp_rank_00/model_weights.ckpt", first}, {"mp_rank_01/model_weights.ckpt", second}}}
      .build();
}

TEST(NemoReaderTest, JoinsTheShardsOfTensorParallelRanks) {
  const std::string qkv = kAttention + "lora_kqv_adapter", dense = kAttention + "lora_dense_attention_adapter",
                    fc = kMlp + "lora_hto4h_adapter";
  const auto qkv_a = qkv + ".linear_in.weight", qkv_b = qkv + ".linear_out.weight";
  // Each rank has one KV group.
  const NemoModule fused = only(twoRanks({matrix(qkv_a, 1, 2, 1), rowNumbers(qkv_b, 4, 2, 0)},
                                         {matrix(qkv_a, 1, 2, 3), rowNumbers(qkv_b, 4, 2, 4)}));
  EXPECT_THAT(fused.a.shape, ElementsAre(2, 2));
  EXPECT_THAT(valuesOf(fused.a), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(rowsOf(fused.b), ElementsAre(0, 1, 4, 5, 2, 6, 3, 7));
  // The input of dense is cut over the ranks.
  const auto dense_a = dense + ".linear_in.weight", dense_b = dense + ".linear_out.weight";
  const NemoModule rows = only(twoRanks({matrix(dense_a, 2, 2, 1), rowNumbers(dense_b, 1, 2, 0)},
                                        {matrix(dense_a, 2, 2, 5), rowNumbers(dense_b, 1, 2, 1)}));
  EXPECT_THAT(rows.a.shape, ElementsAre(2, 4));
  EXPECT_THAT(valuesOf(rows.a), ElementsAre(1, 2, 5, 6, 3, 4, 7, 8));
  EXPECT_THAT(rowsOf(rows.b), ElementsAre(0, 1));
  // Each rank has both halves of a part of the gated MLP, whose size is 2 here.
  const auto fc_a = fc + ".linear_in.weight", fc_b = fc + ".linear_out.weight";
  const NemoFiles files =
      parse(twoRanks({matrix(fc_a, 1, 2), rowNumbers(fc_b, 4, 2, 0)}, {matrix(fc_a, 1, 2), rowNumbers(fc_b, 4, 2, 4)}));
  const NemoModules gated = readNemoModules(files, {4, 2, 1, 4});
  EXPECT_EQ(gated.modules.at(0).module_id, kMlpGateUp);
  EXPECT_THAT(rowsOf(gated.modules[0].b), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
}

TEST(NemoReaderTest, LayersOfLaterStagesFollow) {
  const std::string q = "self_attention.adapter_layer.lora_unfused_kqv_adapter.q_adapter.";
  const auto stage = [&](int layer) {
    const std::string name = fmt::format("model.decoder.layers.{}.{}", layer, q);
    return std::vector{matrix(name + "linear_in.weight", 1, 2), matrix(name + "linear_out.weight", 4, 1)};
  };
  const NemoFiles files = parse(TestNemo{
      "pipeline_model_parallel_size: 2\nnum_layers: 6\n",
      {{"tp_rank_00_pp_rank_000/model_weights.ckpt", stage(1)},
       {"tp_rank_00_pp_rank_001/model_weights.ckpt",
        stage(2)}}}.build());
  const NemoModules read = readNemoModules(files, kShape);
  ASSERT_EQ(read.modules.size(), 2u);
  EXPECT_EQ(read.modules[0].layer, 1);
  EXPECT_EQ(read.modules[1].layer, 5);
}

std::vector<TestTensor> queries(int64_t rank = 2) {
  const std::string name = kAttention + "lora_unfused_kqv_adapter.q_adapter.";
  return {matrix(name + "linear_in.weight", rank, 5), matrix(name + "linear_out.weight", 4, rank)};
}

TEST(NemoReaderTest, ScaleIsAlphaByDim) {
  const auto scaleOf = [&](const std::string& tuning) {
    return readNemoModules(parse(onlyRank(queries(), "peft:\n  peft_scheme: lora\n  lora_tuning: {" + tuning + "}\n")),
                           kShape)
        .scale;
  };
  EXPECT_EQ(scaleOf("adapter_dim: 2, alpha: 8"), 4.0f);
  EXPECT_EQ(scaleOf("adapter_dim: 2, alpha: null, variant: canonical, target_modules: [attention_qkv]"), 1.0f);
  EXPECT_EQ(scaleOf("adapter_dim: 2"), 1.0f);
  EXPECT_EQ(readNemoModules(parse(onlyRank(queries())), kShape).scale, 1.0f);
}

TEST(NemoReaderTest, RefusesAConfigThatItDoesNotImplement) {
  const auto refusal = [&](const std::string& peft) {
    return refusalOf(onlyRank(queries(), "peft: {" + peft + "}\n"));
  };
  EXPECT_THAT(refusal("peft_scheme: ia3"), HasSubstr("'peft.peft_scheme' ia3 is not supported"));
  EXPECT_THAT(refusal("lora_tuning: {weight_tying: true}"), HasSubstr("'peft.lora_tuning.weight_tying' is set"));
  EXPECT_THAT(refusal("lora_tuning: {variant: vera}"), HasSubstr("'peft.lora_tuning.variant' vera"));
  EXPECT_THAT(refusal("lora_tuning: {alpha: 8}"), HasSubstr("'peft.lora_tuning.adapter_dim' is missing"));
  EXPECT_THAT(refusal("lora_tuning: {adapter_dim: 2, alpha: 0}"), HasSubstr("'peft.lora_tuning.alpha' is 0"));
  EXPECT_THAT(refusal("lora_tuning: {adapter_dim: 4}"),
              HasSubstr("has rank 2, but 'peft.lora_tuning.adapter_dim' is 4"));
  EXPECT_THAT(refusal("lora_tuning: 3"), HasSubstr("'peft.lora_tuning' must be a map"));
}

TEST(NemoReaderTest, RefusesTensorsThatDoNotFit) {
  const std::string q = kAttention + "lora_unfused_kqv_adapter.q_adapter.", qkv = kAttention + "lora_kqv_adapter.";
  EXPECT_THAT(refusalOf(onlyRank({matrix("model.embedding.weight", 1, 1)})),
              HasSubstr("'model.embedding.weight' is no linear_in"));
  EXPECT_THAT(refusalOf(onlyRank({matrix(kAttention + "lora_kqv_adapter.layer_norm.weight", 1, 1)})),
              HasSubstr("is no linear_in"));
  EXPECT_THAT(refusalOf(onlyRank({})), HasSubstr("f: no LoRA tensors"));
  EXPECT_THAT(refusalOf(onlyRank({queries()[0]})), HasSubstr("whose linear_out is missing"));
  EXPECT_THAT(refusalOf(onlyRank({matrix(q + "linear_in.weight", 2, 5), matrix(q + "linear_out.weight", 4, 3)})),
              HasSubstr("has 3 columns, but the adapter's linear_in has 2 rows"));
  EXPECT_THAT(refusalOf(onlyRank({{q + "linear_in.weight", {4}, {1, 2, 3, 4}}, queries()[1]})),
              HasSubstr("expected a matrix"));
  EXPECT_THAT(refusalOf(onlyRank({matrix(qkv + "linear_in.weight", 2, 5), matrix(qkv + "linear_out.weight", 7, 2)})),
              HasSubstr("has 7 rows in all, but 4 query heads and 2 KV heads of size 1 have 8"));
  auto bad = queries();
  bad[1].values[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusalOf(onlyRank(bad)), HasSubstr("not finite"));
  EXPECT_THAT(refusalOf(twoRanks(queries(), {queries()[0]})),
              HasSubstr("missing in the checkpoint of tensor-parallel rank 1"));
  EXPECT_THAT(refusalOf(twoRanks({queries()[0]}, queries())),
              HasSubstr("missing in the checkpoint of tensor-parallel rank 0"));
  EXPECT_THAT(refusalOf(twoRanks(queries(), queries(1))), HasSubstr("has another shape or type"));
}

// An adapter of the test model, which has one KV head, so that the fused rows are in order.
std::vector<TestTensor> ofTestModel() {
  std::vector<TestTensor> tensors;
  for (const int layer : {0, 1}) {
    const std::string before = fmt::format("model.decoder.layers.{}.", layer);
    const std::string qkv = before + "self_attention.adapter_layer.lora_kqv_adapter.",
                      proj = before + "mlp.adapter_layer.lora_4htoh_adapter.";
    for (const TestTensor& tensor :
         {matrix(qkv + "linear_in.weight", 2, 4), matrix(qkv + "linear_out.weight", 8, 2),
          matrix(proj + "linear_in.weight", 2, 6), matrix(proj + "linear_out.weight", 4, 2)}) {
      tensors.push_back(tensor);
    }
  }
  return tensors;
}

class NemoDirectoryTest : public testing::Test {
 protected:
  NemoDirectoryTest() {
    std::string name = testing::TempDir() + "nemo.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
    dir_ = name;
  }
  ~NemoDirectoryTest() override { fs::remove_all(dir_); }
  AdapterTarget target(int64_t max_rank = 0) const { return {model_.config, model_.table, max_rank}; }
  std::string refusal(int64_t max_rank = 0) {
    return errorOf([&] { readAdapter(dir_, "a", target(max_rank)); });
  }

  fs::path dir_;
  TestModel model_;
};

TEST_F(NemoDirectoryTest, ReadsAnAdapterOfTheModel) {
  model_.config.head_size = 2;
  const std::string archive =
      onlyRank(ofTestModel(), "peft: {lora_tuning: {adapter_dim: 2, alpha: 4}}\nnum_attention_heads: 2\n");
  for (const std::string& bytes : {archive, gzipped(archive)}) {
    writeFileAtomically(dir_ / "any name.nemo", bytes);
    for (const fs::path& path : {dir_, dir_ / "any name.nemo"}) {
      const Adapter adapter = readAdapter(path, "a", target());
      ASSERT_EQ(adapter.modules.size(), 4u);
      EXPECT_EQ(adapter.modules[0].module_id, kAttnQkv);
      EXPECT_EQ(adapter.modules[1].module_id, kMlp4HToH);
      EXPECT_EQ(adapter.modules[3].layer, 1);
      EXPECT_EQ(adapter.modules[3].scale, 2.0f);
      EXPECT_EQ(adapter.max_rank, 2);
      EXPECT_EQ(loadAsFloat(adapter.modules[1].b, adapter.modules[1].dtype, 7), 8.0f);
      EXPECT_EQ(adapter.content_hash.size(), 64u);
    }
    const AdapterHeaders headers = readAdapterHeaders(AdapterLocation::of(dir_), {kMost, kMost});
    EXPECT_EQ(headers.loadBytes(), bytes == archive ? 3 * bytes.size() : bytes.size());
    const Adapter shapes = readAdapter(headers.parse(), "a", target());
    ASSERT_EQ(shapes.modules.size(), 4u);
    EXPECT_EQ(shapes.only_shapes, bytes == archive);
    EXPECT_EQ(shapes.modules[3].aBytes(), 2 * 6 * sizeof(float));
    EXPECT_EQ(loadAsFloat(shapes.modules[1].b, DType::kFloat32, 7), bytes == archive ? 0.0f : 8.0f);
  }
}

TEST_F(NemoDirectoryTest, SeparateHalvesOfAFusedModuleShareA) {
  model_.config.head_size = 2;
  model_.table[0].lora_targets.erase(model_.table[0].lora_targets.begin());  // no attn_qkv
  writeFileAtomically(dir_ / "a.nemo", onlyRank(ofTestModel()));
  const Adapter adapter = readAdapter(dir_, "a", target());
  ASSERT_EQ(adapter.modules.size(), 8u);
  EXPECT_EQ(adapter.modules[0].module_id, kAttnQ);
  EXPECT_EQ(adapter.modules[2].module_id, kAttnV);
  EXPECT_EQ(adapter.modules[0].a, adapter.modules[2].a);
  EXPECT_EQ(adapter.modules[2].out, 2);
  EXPECT_EQ(loadAsFloat(adapter.modules[2].b, DType::kFloat32, 0), 13.0f);
}

TEST_F(NemoDirectoryTest, RefusesAnAdapterOfAnotherModel) {
  model_.config.head_size = 2;
  const auto write = [&](const std::vector<TestTensor>& tensors, const std::string& config = "mcore_gpt: true\n") {
    writeFileAtomically(dir_ / "a.nemo", onlyRank(tensors, config));
  };
  write(ofTestModel(), "num_query_groups: 2\n");
  EXPECT_THAT(refusal(), HasSubstr("'num_query_groups' is 2, but the model has 1"));
  write(ofTestModel());
  EXPECT_THAT(refusal(1), HasSubstr("has rank 2, above the maximum of 1"));
  const std::string dense = kAttention + "lora_dense_attention_adapter.", fc = kMlp + "lora_hto4h_adapter.";
  write({matrix(dense + "linear_in.weight", 2, 4), matrix(dense + "linear_out.weight", 4, 2)});
  EXPECT_THAT(refusal(), HasSubstr("adapts no module of LlamaForCausalLM"));
  write({matrix(fc + "linear_in.weight", 2, 5), matrix(fc + "linear_out.weight", 6, 2)});
  EXPECT_THAT(refusal(), HasSubstr("has 5 inputs and 6 outputs, expected 4 and 6"));
  const std::string far = "model.decoder.layers.2.mlp.adapter_layer.lora_hto4h_adapter.";
  write({matrix(far + "linear_in.weight", 2, 4), matrix(far + "linear_out.weight", 6, 2)});
  EXPECT_THAT(refusal(), HasSubstr("belongs to layer 2, but the model has 2 layers"));
  const std::string up = kMlp + "lora_unfused_hto4h_adapter.gate_adapter.";
  write({matrix(fc + "linear_in.weight", 2, 4), matrix(fc + "linear_out.weight", 6, 2),
         matrix(up + "linear_in.weight", 2, 4), matrix(up + "linear_out.weight", 6, 2)});
  EXPECT_THAT(refusal(), HasSubstr("adapts the same weights as another module"));
}

TEST_F(NemoDirectoryTest, ADirectoryHoldsOneAdapter) {
  EXPECT_THAT(refusal(), HasSubstr("it holds no adapter: neither adapter_config.json nor a .nemo file"));
  writeFileAtomically(dir_ / "a.nemo", onlyRank(ofTestModel()));
  writeFileAtomically(dir_ / ".b.nemo", "a file that is being downloaded");
  fs::create_directory(dir_ / "c.nemo");
  EXPECT_EQ(nemoArchiveIn(*Directory::open(dir_)), "a.nemo");
  EXPECT_TRUE(isAdapter(dir_));
  EXPECT_TRUE(isAdapter(dir_ / "a.nemo"));
  EXPECT_FALSE(isAdapter(dir_ / "none.nemo"));
  writeFileAtomically(dir_ / "b.nemo", "");
  EXPECT_THAT(refusal(), HasSubstr("it holds 2 adapters, a.nemo and b.nemo"));
  EXPECT_NO_THROW(readAdapterFiles(AdapterLocation::of(dir_ / "a.nemo"), {kMost, kMost}));
  fs::remove(dir_ / "b.nemo");
  writeFileAtomically(dir_ / "adapter_config.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("it holds two adapters, adapter_config.json and a.nemo"));
}

TEST_F(NemoDirectoryTest, RefusesAnArchiveBeyondTheModel) {
  writeFileAtomically(dir_ / "a.nemo", gzipped(onlyRank(ofTestModel())));
  EXPECT_THAT(errorOf([&] { readAdapterFiles(AdapterLocation::of(dir_), {kMost, 4096}); }),
              HasSubstr("it unpacks to more than 4096 bytes"));
  // An archive holds only A and B: the limit is far below the whole weights of a large model.
  model_.table[0].shape = {1 << 16, 1 << 16};
  const AdapterFileLimits limits = AdapterFileLimits::of({model_.config, model_.table, 8});
  EXPECT_LT(limits.nemo_archive, limits.peft_weights / 100);
}

}  // namespace
}  // namespace chorus
