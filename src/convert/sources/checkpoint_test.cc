#include "convert/sources/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "checkpoint/names.h"
#include "checkpoint/writer.h"
#include "convert/convert_model.h"
#include "formats/safetensors.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kModel = test::sourceDir() / "tests/goldens/checkpoint/model";

struct Stored {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using StoredTensors = std::map<std::string, Stored>;

class CheckpointSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "checkpoint_source.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    fs::copy(kModel, dir_ / "model");
  }
  void TearDown() override { fs::remove_all(dir_); }

  fs::path convert(const fs::path& from, const std::string& to, const ConvertOptions& options) {
    convertModel(from, dir_ / to, options);
    return dir_ / to;
  }
  void editModel(const std::function<void(Json&)>& edit) { editConfig(dir_ / "model", edit); }
  static void editConfig(const fs::path& dir, const std::function<void(Json&)>& edit) {
    Json json = readJsonFile(dir / "config.json");
    edit(json);
    writeFileAtomically(dir / "config.json", json.dump(2) + "\n");
  }
  // Changes the tensors of a rank's file.
  static void editRank(const fs::path& dir, int32_t rank, const std::function<void(StoredTensors&)>& edit) {
    const fs::path path = dir / rankFileName(rank);
    StoredTensors tensors;
    const Safetensors file = Safetensors::open(path);
    for (const std::string& name : file.names()) {
      const TensorView* view = file.find(name);
      tensors[name] = {view->dtype, view->shape, {view->bytes.begin(), view->bytes.end()}};
    }
    edit(tensors);
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const auto& [name, tensor] : tensors) declarations.push_back({name, tensor.dtype, tensor.shape});
    SafetensorsWriter writer(path, declarations);
    for (const auto& [name, tensor] : tensors) writer.write(name, 0, tensor.bytes);
    writer.finish();
  }
  std::string refusal(const fs::path& from, const ConvertOptions& options = {}) {
    return errorOf([&] { convertModel(from, dir_ / "refused", options); });
  }

  fs::path dir_;
};

// Every file of both directories.
void expectEqual(const fs::path& a, const fs::path& b) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(a)) {
    const fs::path name = entry.path().filename();
    EXPECT_EQ(readFile(a / name, 1 << 24), readFile(b / name, 1 << 24)) << name;
    ++files;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(b), fs::directory_iterator()), static_cast<std::ptrdiff_t>(files));
}

struct Layout {
  int32_t tp_size;
  int32_t pp_size;
  int32_t embedding;  // -1: whole on every rank; otherwise embedding_sharding_dim

  ConvertOptions with(ConvertOptions options) const {
    options.tp_size = tp_size;
    options.pp_size = pp_size;
    options.use_parallel_embedding = embedding >= 0;
    options.embedding_sharding_dim = std::max(embedding, 0);
    return options;
  }
};
const Layout kLayouts[] = {{1, 1, -1}, {2, 1, 0}, {4, 1, 1}, {1, 3, -1}, {2, 2, 1}, {4, 2, 0}};

TEST_F(CheckpointSourceTest, AnyRanksBecomeAnyOtherRanks) {
  using Quantise = std::optional<QuantiseOptions>;
  for (const bool tied : {false, true}) {
    editModel([&](Json& json) { json["tie_word_embeddings"] = tied; });
    for (const Quantise& quantise : {Quantise(), Quantise({.bits = 8}), Quantise({.bits = 4})}) {
      std::vector<std::pair<Layout, fs::path>> checkpoints;
      for (const Layout& layout : kLayouts) {
        // With 4 ranks, 7 rows of the MLP are on a rank, which are not pairs.
        if (quantise && quantise->bits == 4 && layout.tp_size == 4) continue;
        const std::string name = fmt::format("tp{}_pp{}", layout.tp_size, layout.pp_size);
        const ConvertOptions options = layout.with({.quantise = quantise, .workers = 1});
        checkpoints.emplace_back(layout, convert(dir_ / "model", name, options));
      }
      for (const auto& [from, source] : checkpoints) {
        for (const auto& [to, direct] : checkpoints) {
          SCOPED_TRACE(fmt::format("tied {} bits {} from {} to {}", tied, quantise ? quantise->bits : 0,
                                   source.filename().string(), direct.filename().string()));
          expectEqual(convert(source, "resharded", to.with({.workers = 2})), direct);
        }
      }
    }
  }
}

TEST_F(CheckpointSourceTest, AQuantisedHeadIsPaddedWithRowsOfZeros) {
  const ConvertOptions options = {.quantise = QuantiseOptions{.bits = 8, .quantise_head = true}, .workers = 1};
  const fs::path one = convert(dir_ / "model", "one", options);
  const fs::path two = convert(dir_ / "model", "two", Layout{2, 2, 0}.with(options));
  expectEqual(convert(one, "split", Layout{2, 2, 0}.with({})), two);
  expectEqual(convert(two, "joined", {}), one);
}

TEST_F(CheckpointSourceTest, FloatsAreQuantisedAndRoundedOnTheWay) {
  const fs::path ranks = convert(dir_ / "model", "ranks", Layout{2, 2, 0}.with({.dtype = DType::kFloat32}));
  for (const ConvertOptions& options :
       {ConvertOptions{.dtype = DType::kBFloat16}, ConvertOptions{.dtype = DType::kFloat16, .tp_size = 2},
        ConvertOptions{.quantise = QuantiseOptions{.bits = 4}}}) {
    expectEqual(convert(ranks, "joined", options), convert(dir_ / "model", "direct", options));
  }
}

TEST_F(CheckpointSourceTest, ScalesTakeTheNewDtype) {
  const QuantiseOptions quantise = {.bits = 8};
  const fs::path exact = convert(dir_ / "model", "exact", {.dtype = DType::kFloat32, .quantise = quantise});
  const fs::path half = convert(exact, "half", {.dtype = DType::kFloat16, .tp_size = 2});
  const Safetensors file = Safetensors::open(half / rankFileName(0));
  EXPECT_EQ(file.find("transformer.layers.0.mlp.fc.weight")->dtype, DType::kInt8);
  EXPECT_EQ(file.find("transformer.layers.0.mlp.fc.per_channel_scale")->dtype, DType::kFloat16);
}

TEST_F(CheckpointSourceTest, SpellingsOfOtherConvertersAreRead) {
  const fs::path plain = convert(dir_ / "model", "plain", {});
  const fs::path source = convert(dir_ / "model", "source", Layout{2, 1, 0}.with({}));
  for (const int32_t rank : {0, 1}) {
    editRank(source, rank, [](StoredTensors& tensors) {
      auto table = tensors.extract(std::string(kEmbeddingTensor));
      table.key() = "transformer.embedding.vocab_embedding.weight";
      tensors.insert(std::move(table));
    });
  }
  expectEqual(convert(source, "joined", {}), plain);
  // ModelOpt's types of integers and scales.
  const QuantiseOptions quantise = {.bits = 4};
  const fs::path quantised = convert(dir_ / "model", "quantised", {.quantise = quantise});
  const fs::path modelopt = convert(dir_ / "model", "modelopt", {.tp_size = 2, .quantise = quantise});
  for (const int32_t rank : {0, 1}) {
    editRank(modelopt, rank, [](StoredTensors& tensors) {
      for (auto& [name, tensor] : tensors) {
        if (tensor.dtype == DType::kInt8) tensor.dtype = DType::kUint8;
      }
    });
  }
  expectEqual(convert(modelopt, "joined", {}), quantised);
}

// Converters of TensorRT-LLM write the head of a tied model, and no field that says that it is tied.
TEST_F(CheckpointSourceTest, AHeadThatIsACopyOfTheTableIsTied) {
  editModel([](Json& json) { json["tie_word_embeddings"] = true; });
  const fs::path tied = convert(dir_ / "model", "tied", {});
  const fs::path ranks = convert(dir_ / "model", "ranks", Layout{2, 2, 1}.with({}));
  editConfig(ranks, [](Json& json) { json.erase("tie_word_embeddings"); });
  expectEqual(convert(ranks, "joined", {}), tied);
  // A head with other values is kept, whatever the config says.
  editRank(ranks, 3, [](StoredTensors& tensors) { tensors.at(std::string(kHeadTensor)).bytes[2] ^= std::byte{1}; });
  editConfig(ranks, [](Json& json) { json["tie_word_embeddings"] = true; });
  const fs::path untied = convert(ranks, "untied", {});
  EXPECT_NE(Safetensors::open(untied / rankFileName(0)).find(kHeadTensor), nullptr);
}

TEST_F(CheckpointSourceTest, UnreadableCheckpointsAreRefusedByName) {
  const fs::path source = convert(dir_ / "model", "source", Layout{2, 2, -1}.with({}));
  for (const char* algorithm : {"W4A16_AWQ", "W4A16_GPTQ", "W8A16_GPTQ", "FP8", "W8A8_SQ_PER_CHANNEL", "NVFP4"}) {
    editConfig(source, [&](Json& json) { json["quantization"]["quant_algo"] = algorithm; });
    EXPECT_THAT(refusal(source), HasSubstr(fmt::format("quant_algo '{}' is not supported", algorithm)));
    EXPECT_THAT(refusal(source), HasSubstr("Convert the unquantised model"));
  }
  editConfig(source, [&](Json& json) { json["quantization"]["quant_algo"] = "W8A16"; });
  EXPECT_THAT(refusal(source), HasSubstr("weight_layout missing (a GPU's own order)"));
  editConfig(source, [&](Json& json) { json["quantization"]["quant_algo"] = nullptr; });
  EXPECT_EQ(refusal(source), "");
  EXPECT_THAT(refusal(source, {.tp_size = 3}), HasSubstr("tp_size 3"));
  editRank(source, 2, [](StoredTensors& tensors) { tensors.erase("transformer.layers.0.mlp.fc.weight"); });
  EXPECT_THAT(refusal(source), HasSubstr("rank2.safetensors: Required but not provided tensors: "
                                         "transformer.layers.0.mlp.fc.weight"));
  fs::remove(source / rankFileName(3));
  EXPECT_THAT(refusal(source), HasSubstr("rank3.safetensors: missing"));
  fs::remove(source / "config.json");
  EXPECT_THAT(refusal(source), HasSubstr("config.json"));

  const QuantiseOptions quantise = {.bits = 8};
  const fs::path quantised = convert(dir_ / "model", "quantised", {.quantise = quantise});
  EXPECT_THAT(refusal(quantised, {.quantise = quantise}), HasSubstr("the weights are quantised already (W8A16)"));
  EXPECT_THAT(errorOf([&] { convertModel(quantised, quantised, {}); }), HasSubstr("is the model itself"));
  EXPECT_FALSE(fs::exists(dir_ / "refused" / "rank1.safetensors"));
}

TEST_F(CheckpointSourceTest, TheFilesAreConfigAndRanks) {
  const fs::path source = convert(dir_ / "model", "source", {.tp_size = 2});
  EXPECT_THAT(checkpointReader().files(source),
              testing::ElementsAre("config.json", "rank0.safetensors", "rank1.safetensors"));
  EXPECT_TRUE(checkpointReader().recognises(source));
  EXPECT_FALSE(checkpointReader().recognises(dir_ / "model"));
}

}  // namespace
}  // namespace chorus
