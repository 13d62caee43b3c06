#include "convert/sources/deepspeed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <tuple>

#include "base/json.h"
#include "convert/sources/deepspeed_files.h"
#include "convert/sources/deepspeed_shards.h"
#include "convert/sources/deepspeed_zero.h"
#include "convert/testing/source_fixture.h"
#include "formats/safetensors.h"
#include "formats/testing/torch_test_file.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTag = "global_step7";

struct Stored {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Stored>;

// The pickle of a dictionary of tensors, whose bytes are appended to the archive.
std::string pickledTensors(const Tensors& tensors, TestZip& zip) {
  std::vector<std::pair<std::string, std::string>> items;
  for (const auto& [name, tensor] : tensors) {
    const std::string key = std::to_string(zip.entries.size());
    std::vector<int32_t> shape(tensor.shape.begin(), tensor.shape.end()), strides(shape.size());
    for (size_t i = shape.size(), step = 1; i-- > 0; step *= static_cast<size_t>(shape[i])) {
      strides[i] = static_cast<int32_t>(step);
    }
    const auto count = static_cast<int32_t>(tensor.values.size());
    items.emplace_back(name, pickled::tensor(pickled::storage(pickled::global("torch", "FloatStorage"), key, count), 0,
                                             shape, strides));
    std::string bytes(tensor.values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), tensor.values.data(), bytes.size());
    zip.entries.push_back({.name = "a/data/" + key, .bytes = bytes});
  }
  return pickled::dict(items);
}
std::string torchFile(const std::function<std::string(TestZip&)>& body) {
  TestZip zip;
  zip.entries.push_back({.name = "a/version", .bytes = "3"});
  const std::string pickle = pickled::whole(body(zip));
  zip.entries.push_back({.name = "a/data.pkl", .bytes = pickle});
  return zip.build();
}
// A file mp_rank_*_model_states.pt with these weights.
std::string moduleFile(const Tensors& tensors) {
  return torchFile([&](TestZip& zip) { return pickled::dict({{"module", pickledTensors(tensors, zip)}}); });
}

class DeepSpeedTest : public SourceFixture {
 protected:
  // Copies a checkpoint that DeepSpeed wrote to a new directory, as transformers' Trainer lays it out.
  fs::path place(const std::string& variant, const std::string& model = "llama") {
    const fs::path root = dir_ / (variant + std::to_string(++placed_));
    fs::create_directories(root / kTag);
    for (const auto& entry : fs::directory_iterator(corpus("deepspeed_states_fuzz"))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(variant + "--")) fs::copy(entry.path(), root / kTag / name.substr(variant.size() + 2));
    }
    write(root / "latest", kTag);
    fs::copy(original(model) / "config.json", root);
    return root;
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  static Tensors tensorsOf(const std::string& model) {
    Tensors tensors;
    const Safetensors file = Safetensors::open(original(model) / "model.safetensors");
    for (const std::string& name : file.names()) {
      const TensorView& view = *file.find(name);
      Stored& stored = tensors[name];
      stored.shape = view.shape;
      stored.values.resize(static_cast<size_t>(view.elements()));
      std::memcpy(stored.values.data(), view.bytes.data(), view.bytes.size());
    }
    return tensors;
  }

 private:
  int placed_ = 0;
};

TEST_F(DeepSpeedTest, EveryKindOfCheckpointGivesTheSameBytes) {
  const auto expected = checkpointOf(original("llama"));
  for (const char* variant : {"zero1", "zero2", "zero2_partitions", "zero3", "pipeline"}) {
    EXPECT_EQ(checkpointOf(place(variant)), expected) << variant;
  }
  EXPECT_EQ(checkpointOf(place("zero3_tied", "llama_tied")), checkpointOf(original("llama_tied")));
  const ConvertOptions ranks = {.dtype = DType::kBFloat16, .tp_size = 2, .pp_size = 2};
  EXPECT_EQ(checkpointOf(place("zero3"), ranks), checkpointOf(original("llama"), ranks));
}

TEST_F(DeepSpeedTest, ThePathMayBeAnyDirectoryOfTheCheckpoint) {
  const auto expected = checkpointOf(original("llama"));
  const fs::path root = place("zero3");
  EXPECT_EQ(checkpointOf(root / kTag), expected);
  fs::remove(root / "latest");
  EXPECT_EQ(checkpointOf(root), expected) << "one directory is found without its name";
  fs::copy(root / kTag, root / "global_step12");
  EXPECT_THAT(refusalOf(root), AllOf(HasSubstr("several checkpoints"), HasSubstr("global_step7")));
  write(root / "latest", "global_step12\n");
  EXPECT_EQ(checkpointOf(root), expected);
  // The config is one directory above the checkpoint's.
  const fs::path output = dir_ / "output";
  fs::create_directory(output);
  fs::rename(root, output / "checkpoint-7");
  fs::rename(output / "checkpoint-7/config.json", output / "config.json");
  EXPECT_EQ(checkpointOf(output / "checkpoint-7"), expected);
  fs::remove(output / "config.json");
  EXPECT_THAT(refusalOf(output / "checkpoint-7"), AllOf(HasSubstr("config.json is missing"), HasSubstr("output")));
}

TEST_F(DeepSpeedTest, HuggingFacesFilesComeFirst) {
  const fs::path root = place("zero1");
  fs::copy(original("llama") / "model.safetensors", root);
  fs::remove_all(root / kTag);
  EXPECT_EQ(checkpointOf(root), checkpointOf(original("llama")));
}

TEST_F(DeepSpeedTest, LatestMustNameADirectory) {
  const fs::path root = place("zero1");
  for (const std::string& tag :
       {std::string("../zero11/global_step7"), std::string(".."), std::string(), std::string("a\nb")}) {
    write(root / "latest", tag);
    EXPECT_THAT(refusalOf(root), HasSubstr("must name a directory beside it"));
  }
  write(root / "latest", "global_step9");
  EXPECT_THAT(refusalOf(root), HasSubstr("'global_step9'"));
}

TEST_F(DeepSpeedTest, MissingFilesAreNamed) {
  for (const auto& [variant, file, text] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"zero3", "zero_pp_rank_1_mp_rank_00_optim_states.pt", "*_optim_states.pt of rank 1 is missing"},
           {"zero3", "zero_pp_rank_2_mp_rank_00_optim_states.pt", "cut over 3 ranks"},
           {"zero3", "zero_pp_rank_0_mp_rank_00_model_states.pt", "*_model_states.pt of rank 0 is missing"},
           {"zero3", "zero_pp_rank_2_mp_rank_00_model_states.pt", "those of all ranks"},
           {"zero2_partitions", "zero_pp_rank_2_mp_rank_00_optim_states.pt", "cut over 3 ranks"},
           {"zero2_partitions", "mp_rank_00_model_states.pt", "no file *_model_states.pt"},
           {"pipeline", "layer_03-model_states.pt", "model.norm.weight"}}) {
    const fs::path root = place(variant);
    ASSERT_TRUE(fs::remove(root / kTag / file)) << file;
    EXPECT_THAT(refusalOf(root), HasSubstr(text)) << variant << " " << file;
  }
}

TEST_F(DeepSpeedTest, TheModulesWeightsAreTakenBeforePartitions) {
  const fs::path root = place("zero1");
  // Partitions of another training.
  for (const char* rank : {"0", "1"}) {
    const std::string name = fmt::format("zero_pp_rank_{}_mp_rank_00_optim_states.pt", rank);
    fs::copy_file(place("zero2_partitions") / kTag / name, root / kTag / name, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(checkpointOf(root), checkpointOf(original("llama")));
}

TEST_F(DeepSpeedTest, NamesMayHaveTheWrappersPrefix) {
  Tensors wrapped;
  for (const auto& [name, tensor] : tensorsOf("llama")) wrapped["module." + name] = tensor;
  const fs::path root = place("none");
  write(root / kTag / "mp_rank_00_model_states.pt", moduleFile(wrapped));
  EXPECT_EQ(checkpointOf(root), checkpointOf(original("llama")));
  wrapped["module.extra.weight"] = {{1}, {0}};
  write(root / kTag / "mp_rank_00_model_states.pt", moduleFile(wrapped));
  EXPECT_THAT(refusalOf(root), HasSubstr("extra.weight"));
}

// Half `rank` of a tensor along a dimension.
Stored halfOf(const Stored& whole, size_t dimension, size_t rank) {
  Stored half = {.shape = whole.shape, .values = {}};
  half.shape[dimension] /= 2;
  const auto cols = static_cast<size_t>(whole.shape.size() > 1 ? whole.shape[1] : 1);
  for (size_t i = 0; i < whole.values.size(); ++i) {
    const size_t index = dimension == 0 ? i / cols : i % cols;
    if (index / static_cast<size_t>(half.shape[dimension]) == rank) half.values.push_back(whole.values[i]);
  }
  return half;
}

TEST_F(DeepSpeedTest, TensorParallelRanksAreJoined) {
  const auto cut = [](Tensors tensors, size_t rank) {
    for (auto& [name, tensor] : tensors) {
      for (const char* by_rows : {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}) {
        if (name.find(by_rows) != std::string::npos) tensor = halfOf(tensor, 0, rank);
      }
      for (const char* by_cols : {"o_proj", "down_proj"}) {
        if (name.find(by_cols) != std::string::npos) tensor = halfOf(tensor, 1, rank);
      }
    }
    return tensors;
  };
  const fs::path root = place("none");
  const fs::path last = root / kTag / "mp_rank_01_model_states.pt";
  write(root / kTag / "mp_rank_00_model_states.pt", moduleFile(cut(tensorsOf("llama"), 0)));
  write(last, moduleFile(cut(tensorsOf("llama"), 1)));
  EXPECT_EQ(checkpointOf(root), checkpointOf(original("llama")));
  Tensors fewer = cut(tensorsOf("llama"), 1);
  fewer.erase("model.norm.weight");
  write(last, moduleFile(fewer));
  EXPECT_THAT(refusalOf(root), AllOf(HasSubstr("model.norm.weight"), HasSubstr("1 of 2")));
  write(last, moduleFile(tensorsOf("llama")));
  EXPECT_THAT(refusalOf(root), AllOf(HasSubstr("down_proj"), HasSubstr("tensor-parallel parts")));
  fs::rename(last, root / kTag / "mp_rank_02_model_states.pt");
  EXPECT_THAT(refusalOf(root), HasSubstr("of rank 1 is missing"));
}

TEST_F(DeepSpeedTest, PipelinesMayNameTheirLayersOtherwise) {
  // Layers behind a prefix and with numbers that leave a gap, the embedding by its whole name, a second tied embedding.
  std::map<std::string, Tensors> files;
  for (const auto& [name, tensor] : tensorsOf("llama_tied")) {
    const std::string layers = "model.layers.";
    if (name.starts_with(layers)) {
      files["layer_0" + std::to_string(2 + 3 * (name[layers.size()] - '0'))]
           ["block." + name.substr(layers.size() + 2)] = tensor;
    } else if (name == "model.embed_tokens.weight") {
      files["layer_00"][name] = tensor;
      files["layer_09"]["weight"] = tensor;
    } else {
      files["layer_08"]["weight"] = tensor;
    }
  }
  const fs::path root = place("none", "llama_tied");
  for (const auto& [name, tensors] : files) {
    write(root / kTag / (name + "-model_states.pt"),
          torchFile([&](TestZip& zip) { return pickledTensors(tensors, zip); }));
  }
  EXPECT_EQ(checkpointOf(root), checkpointOf(original("llama_tied")));
  write(root / kTag / "layer_10-model_states.pt",
        torchFile([&](TestZip& zip) { return pickledTensors({{"other", {{3}, {1, 2, 3}}}}, zip); }));
  EXPECT_THAT(refusalOf(root), AllOf(HasSubstr("'other'"), HasSubstr("layer 10")));
}

// The config names 2^26 experts, of which the pipeline has four.
TEST(DeepSpeedPipeline, ExpertsThatNoLayerHasAreNotListed) {
  const WeightTable table = {
      {.shape = {2}, .stage = Stage::kFirst, .sources = {{.name = "embed", .rows = 2}}},
      {.shape = {2}, .sources = {{.name = "m.{layer}.{expert}.w", .rows = 2}}, .experts = 1 << 14}};
  const SourceNames names(table, 4096, SourceFormat::kHuggingFace);
  const std::vector<float> values = {1, 2};
  const TensorView view = {DType::kFloat32, {2}, std::as_bytes(std::span(values))};
  PipelineLayer layer;
  for (const char* name : {"0.w", "1.w", "2.w", "3.w"}) layer.emplace_back(name, std::vector{&view});
  EXPECT_THAT(errorOf([&] {
                readPipeline({{0, {{"embed", {&view}}}}, {1, layer}}, names, false, "w",
                             [](const std::string&, const SourceTensor&) {});
              }),
              HasSubstr("tensor 'embed'"));
  EXPECT_THAT(expectedTensor(names, "m.4095.16383.w")->shape, ElementsAre(2));
  EXPECT_FALSE(expectedTensor(names, "m.4096.0.w"));
}

TEST(DeepSpeedPipeline, LayersWithManyExpertsAreFoundInLinearTime) {
  constexpr int64_t kExperts = 1 << 14;
  const WeightTable table = {
      {.shape = {2}, .sources = {{.name = "m.{layer}.{expert}.w", .rows = 2}}, .experts = kExperts}};
  const SourceNames names(table, 2, SourceFormat::kHuggingFace);
  const std::vector<float> values = {1, 2};
  const TensorView view = {DType::kFloat32, {2}, std::as_bytes(std::span(values))};
  PipelineLayer layer;
  for (int64_t i = kExperts; i-- > 0;) layer.emplace_back(fmt::format("b.{}.w", i), std::vector{&view});
  std::set<std::string> added;
  const std::clock_t begin = std::clock();
  readPipeline({{3, layer}, {5, layer}}, names, false, "w",
               [&](const std::string& name, const SourceTensor&) { added.insert(name); });
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
  EXPECT_EQ(added.size(), 2 * kExperts);
  EXPECT_TRUE(added.contains("m.0.0.w") && added.contains("m.1.16383.w"));
}

TEST(DeepSpeedFileNames, AreParsed) {
  using Kind = DeepSpeedFileName::Kind;
  const auto parse = parseDeepSpeedFileName;
  EXPECT_EQ(parse("mp_rank_03_model_states.pt")->tensor_rank, 3);
  EXPECT_FALSE(parse("mp_rank_03_model_states.pt")->zero_rank);
  EXPECT_EQ(parse("zero_pp_rank_12_mp_rank_00_model_states.pt")->zero_rank, 12);
  for (const char* name :
       {"zero_pp_rank_4_mp_rank_01_optim_states.pt", "bf16_zero_pp_rank_4_mp_rank_01_optim_states.pt",
        "zero_pp_rank_4_mp_rank_01optim_states.pt"}) {
    ASSERT_TRUE(parse(name)) << name;
    EXPECT_EQ(parse(name)->kind, Kind::kOptimizer);
    EXPECT_EQ(parse(name)->zero_rank, 4);
    EXPECT_EQ(parse(name)->tensor_rank, 1);
  }
  EXPECT_EQ(parse("layer_05-model_01-model_states.pt")->layer, 5);
  EXPECT_EQ(parse("layer_05-model_01-model_states.pt")->tensor_rank, 1);
  EXPECT_EQ(parse("layer_05-model_states.pt")->kind, Kind::kLayer);
  EXPECT_EQ(parse("layer_0_expert_3_mp_rank_00_model_states.pt")->kind, Kind::kExpert);
  EXPECT_EQ(parse("expp_rank_0_mp_rank_00_optim_states.pt")->kind, Kind::kExpert);
  for (const char* name : {"", "latest", "pytorch_model.bin", "mp_rank_model_states.pt", "mp_rank_-1_model_states.pt",
                           "mp_rank_00_model_states.pt.tmp", "mp_rank_00_optim_states.pt", "layer_-model_states.pt",
                           "mp_rank_99999999999_model_states.pt", "bf16_mp_rank_00_model_states.pt"}) {
    EXPECT_FALSE(parse(name)) << name;
  }
}

// Flat partitions of given sizes. All elements are 0, 1, 2, ... in the order of the ranks and groups.
class Partitions {
 public:
  void add(const std::vector<int64_t>& groups) {
    DeepSpeedStates& states = ranks.emplace_back();
    for (const int64_t size : groups) {
      std::vector<float>& values = memory_.emplace_back();
      for (int64_t i = 0; i < size; ++i) values.push_back(next_++);
      states.partitions.push_back({DType::kFloat32, {size}, std::as_bytes(std::span(values))});
    }
  }
  std::vector<DeepSpeedStates> ranks;

 private:
  std::list<std::vector<float>> memory_;
  float next_ = 0;
};

template <typename Join>
std::map<std::string, std::vector<float>> joined(Join join, const std::vector<std::vector<NamedShape>>& shapes,
                                                 const Partitions& partitions) {
  std::map<std::string, std::vector<float>> result;
  join(shapes, partitions.ranks, "checkpoint", [&](const std::string& name, const SourceTensor& tensor) {
    std::vector<float>& values = result[name];
    values.resize(static_cast<size_t>(tensor.rows() * tensor.cols()));
    tensor.read({0, 0, tensor.rows(), tensor.cols()}, reinterpret_cast<std::byte*>(values.data()));
  });
  return result;
}

TEST(DeepSpeedZero, Stage2ConcatenatesTheRanksOfAGroup) {
  Partitions p;
  p.add({3, 2});  // 0 1 2 | 3 4
  p.add({3, 2});  // 5 6 7 | 8 9
  const std::vector<std::vector<NamedShape>> shapes = {{{"a", {2}}, {"b", {1, 3}}}, {{"c", {3}}}};
  const auto tensors = joined(joinZero2, shapes, p);
  EXPECT_THAT(tensors.at("a"), ElementsAre(0, 1));
  EXPECT_THAT(tensors.at("b"), ElementsAre(2, 5, 6));
  EXPECT_THAT(tensors.at("c"), ElementsAre(3, 4, 8));
  EXPECT_THAT(errorOf([&] { joined(joinZero2, {{{"a", {7}}}, {{"c", {3}}}}, p); }),
              HasSubstr("end before parameter 'a'"));
  EXPECT_THAT(errorOf([&] { joined(joinZero2, {{{"a", {1}}}, {{"c", {3}}}}, p); }),
              HasSubstr("group 0 has 6 elements"));
  EXPECT_THAT(errorOf([&] { joined(joinZero2, {{{"a", {6}}}}, p); }),
              HasSubstr("2 groups of parameters, the model has 1"));
  EXPECT_THAT(errorOf([&] { joined(joinZero2, {{{"a", {INT64_MAX, 4}}}, {}}, p); }), HasSubstr("overflows"));
}

TEST(DeepSpeedZero, Stage3CutsEveryParameter) {
  Partitions p;
  p.add({3, 2});  // rank 0 has 0 1 2 3 4
  p.add({3, 2});  // rank 1 has 5 6 7 8 9
  // Parts of 2, 2 and 1 elements; the second one lies in both groups.
  const std::vector<std::vector<NamedShape>> shapes = {{{"a", {3}}}, {{"b", {2, 2}}, {"c", {2}}}};
  const auto tensors = joined(joinZero3, shapes, p);
  EXPECT_THAT(tensors.at("a"), ElementsAre(0, 1, 5));
  EXPECT_THAT(tensors.at("b"), ElementsAre(2, 3, 7, 8));
  EXPECT_THAT(tensors.at("c"), ElementsAre(4, 9));
  EXPECT_THAT(errorOf([&] { joined(joinZero3, {{{"a", {3}}}}, p); }),
              HasSubstr("take 2 elements of each rank, which has 5"));
  EXPECT_THAT(errorOf([&] { joined(joinZero3, {{{"a", {11}}}}, p); }), HasSubstr("end before parameter 'a'"));
  p.add({4, 2});
  EXPECT_THAT(errorOf([&] { joined(joinZero3, shapes, p); }), HasSubstr("rank 2 has 6 elements"));
}

}  // namespace
}  // namespace chorus
