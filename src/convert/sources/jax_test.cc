#include "convert/sources/jax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>

#include "convert/sources/jax_arrays.h"
#include "convert/testing/source_fixture.h"
#include "formats/testing/torch_test_file.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class JaxTest : public SourceFixture {
 protected:
  // A new directory with a file of a corpus and the config of the model.
  fs::path place(const std::string& target, const std::string& file, const std::string& model,
                 const std::string& name) {
    const fs::path root = dir_ / ("jax" + std::to_string(++placed_));
    fs::create_directory(root);
    fs::copy(corpus(target) / file, root / name);
    fs::copy(original(model) / "config.json", root);
    return root;
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

 private:
  int placed_ = 0;
};

TEST_F(JaxTest, EveryKindOfFileGivesTheSameBytes) {
  const auto llama = checkpointOf(original("llama"));
  const fs::path msgpack = place("flax_file_fuzz", "llama.msgpack", "llama", "flax_model.msgpack");
  EXPECT_EQ(checkpointOf(msgpack), llama);
  EXPECT_EQ(checkpointOf(msgpack / "flax_model.msgpack"), llama);
  const fs::path npz = place("npz_fuzz", "llama.npz", "llama", "params.npz");
  EXPECT_EQ(checkpointOf(npz), llama);
  EXPECT_EQ(checkpointOf(npz / "params.npz"), llama);
  for (const char* model : {"gpt2", "gptj"}) {
    EXPECT_EQ(checkpointOf(place("flax_file_fuzz", std::string(model) + ".msgpack", model, "flax_model.msgpack")),
              checkpointOf(original(model)))
        << model;
  }
  const ConvertOptions ranks = {.dtype = DType::kFloat16, .tp_size = 2, .pp_size = 2};
  EXPECT_EQ(checkpointOf(msgpack, ranks), checkpointOf(original("llama"), ranks));
}

TEST_F(JaxTest, DeepMindsGemmaGivesTheSameBytes) {
  // Compressed, in bfloat16, which numpy stores as two-byte voids.
  const ConvertOptions ranks = {.dtype = DType::kFloat32, .tp_size = 2, .pp_size = 2};
  for (const char* model : {"gemma_2b", "gemma_7b", "gemma2", "gemma3"}) {
    SCOPED_TRACE(model);
    const fs::path jax = place("npz_fuzz", std::string(model) + ".npz", model, "gemma.npz");
    EXPECT_EQ(checkpointOf(jax), checkpointOf(original(model)));
    EXPECT_EQ(checkpointOf(jax, ranks), checkpointOf(original(model), ranks));
  }
}

TEST_F(JaxTest, ShardsAreJoined) {
  const fs::path root = place("flax_file_fuzz", "llama.msgpack", "llama", "flax_model-00001-of-00001.msgpack");
  write(root / "flax_model.msgpack.index.json",
        R"({"weight_map": {"model/norm/weight": "flax_model-00001-of-00001.msgpack"}})");
  EXPECT_EQ(checkpointOf(root), checkpointOf(original("llama")));
  write(root / "flax_model.msgpack.index.json", R"({"weight_map": {"model/norm/weight": "../other.msgpack"}})");
  EXPECT_THAT(refusalOf(root), HasSubstr("must name a file of the same directory"));
}

TEST_F(JaxTest, MissingTensorsAreNamed) {
  const fs::path root = place("npz_fuzz", "llama.npz", "llama", "params.npz");
  fs::copy(root / "params.npz", root / "other.npz");
  EXPECT_THAT(refusalOf(root), AllOf(HasSubstr("several .npz files"), HasSubstr("other.npz")));
  fs::remove(root / "config.json");
  EXPECT_THAT(refusalOf(root / "params.npz"), HasSubstr("config.json is missing"));
  EXPECT_THAT(refusalOf(place("npz_fuzz", "gemma2.npz", "gemma3", "g.npz")), HasSubstr("Required but not provided"));
}

TEST_F(JaxTest, DamagedValuesAreRefused) {
  for (const char* file : {"llama.npz", "gemma2.npz"}) {
    const std::string model = std::string(file).substr(0, std::string(file).size() - 4);
    const fs::path root = place("npz_fuzz", file, model, "params.npz");
    std::string bytes = contents(root / "params.npz");
    const size_t at =
        bytes.find("PK\x03\x04", 1);  // the second entry: the byte before belongs to the first one's values
    bytes[at - 1] ^= 1;
    write(root / "params.npz", bytes);
    EXPECT_NE(refusalOf(root), "") << file;
  }
}

JaxArray arrayOf(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values, bool fortran) {
  const TensorView view = {DType::kFloat32, {static_cast<int64_t>(values.size())}, std::as_bytes(std::span(values))};
  return {.name = name, .shape = std::move(shape), .fortran_order = fortran, .parts = {view}, .file = "f.npz"};
}
std::vector<float> valuesOf(const SourceTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.rows() * tensor.cols()));
  tensor.read({0, 0, tensor.rows(), tensor.cols()}, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

TEST(JaxArrays, MatricesOfEitherOrderAreTransposed) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const JaxArray rows = arrayOf("w", {2, 3}, values, false), columns = arrayOf("w", {2, 3}, values, true);
  EXPECT_THAT(valuesOf(tensorOf(rows, false)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(valuesOf(tensorOf(rows, true)), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(valuesOf(tensorOf(columns, false)), ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_THAT(valuesOf(tensorOf(columns, true)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(tensorOf(rows, true).shape(), ElementsAre(3, 2));
  EXPECT_THAT(errorOf([&] { tensorOf(arrayOf("w", {1, 2, 3}, values, true), false); }), HasSubstr("Fortran order"));
}

std::vector<std::string> parametersOf(const std::vector<std::string>& names) {
  std::vector<JaxArray> arrays;
  for (const std::string& name : names) arrays.push_back(arrayOf(name, {}, {}, false));
  keepParameters(arrays);
  std::vector<std::string> kept;
  for (const JaxArray& array : arrays) kept.push_back(array.name);
  return kept;
}

TEST(JaxArrays, OnlyParametersAreKept) {
  EXPECT_THAT(parametersOf({"a.b", "params.c"}), ElementsAre("c"));
  EXPECT_THAT(parametersOf({"a.b/c", "params.d"}), ElementsAre("a.b/c", "params.d"));
  EXPECT_THAT(parametersOf({"params/a/params/b", "opt_state/a", "params/c"}), ElementsAre("a/params/b", "c"));
  EXPECT_THAT(parametersOf({"params/params/a", "params/opt_state/b", "params/params/c"}), ElementsAre("a", "c"));
  EXPECT_THAT(parametersOf({}), ElementsAre());
}

// Removing one level after the other would move 30 GB.
TEST(JaxArrays, NamesMayHaveThousandsOfLevels) {
  std::string deep;
  while (deep.size() < 65'000) deep += "params/";
  const std::clock_t begin = std::clock();
  EXPECT_EQ(parametersOf(std::vector<std::string>(100, deep + "w")), std::vector<std::string>(100, "w"));
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 2);
}

TEST(JaxArrays, ChunksMayEndInsideARow) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  for (const bool transposed : {false, true}) {
    const std::vector<float> whole = valuesOf(tensorOf(arrayOf("w", {4, 3}, values, false), transposed));
    for (size_t first = 0; first <= values.size(); ++first) {
      for (size_t second = first; second <= values.size(); ++second) {
        JaxArray chunks = {.name = "w", .shape = {4, 3}, .parts = {}, .file = "f"};
        const auto part = [&](size_t begin, size_t end) {
          const auto bytes = std::as_bytes(std::span(values).subspan(begin, end - begin));
          chunks.parts.push_back({DType::kFloat32, {static_cast<int64_t>(end - begin)}, bytes});
        };
        part(0, first);
        part(first, second);
        part(second, values.size());
        EXPECT_EQ(valuesOf(tensorOf(chunks, transposed)), whole) << first << " " << second;
      }
    }
  }
}

TEST(JaxArrays, FlaxNamesBecomePyTorchs) {
  const std::vector<float> values(6);
  std::vector<std::pair<std::string, std::vector<int64_t>>> added;
  addFlaxArrays(
      {arrayOf("transformer/h/0/attn/q_proj/kernel", {2, 3}, values, false),
       arrayOf("transformer/h/0/ln_1/scale", {6}, values, false),
       arrayOf("transformer/h/0/ln_1/bias", {6}, values, false),
       arrayOf("transformer/wte/embedding", {3, 2}, values, false), arrayOf("model/norm/weight", {6}, values, false)},
      [&](std::string name, const SourceTensor& tensor, const std::string&) {
        added.emplace_back(std::move(name), tensor.shape());
      });
  using Added = std::vector<std::pair<std::string, std::vector<int64_t>>>;
  EXPECT_EQ(added, (Added{{"transformer.h.0.attn.q_proj.weight", {3, 2}},
                          {"transformer.h.0.ln_1.weight", {6}},
                          {"transformer.h.0.ln_1.bias", {6}},
                          {"transformer.wte.weight", {3, 2}},
                          {"model.norm.weight", {6}}}));
}

std::string gemmaRefusal(const std::string& name, std::vector<int64_t> shape) {
  const std::vector<float> values(48);
  const std::vector<JaxArray> arrays = {arrayOf("transformer/embedder/input_embedding", {12, 4}, values, false),
                                        arrayOf(name, std::move(shape), values, false)};
  return errorOf([&] { addGemmaArrays(arrays, [](std::string, const SourceTensor&, const std::string&) {}); });
}

TEST(JaxArrays, OtherShapesThanGemmasAreRefused) {
  EXPECT_EQ(gemmaRefusal("transformer/layer_0/attn/q_einsum/w", {2, 4, 6}), "");
  EXPECT_EQ(gemmaRefusal("transformer/layer_0/attn/qkv_einsum/w", {3, 2, 4, 2}), "");
  EXPECT_EQ(gemmaRefusal("transformer/layer_0/mlp/gating_einsum/w", {2, 6, 4}), "");
  EXPECT_EQ(gemmaRefusal("transformer/embedder/mm_input_projection/w", {48}), "");
  EXPECT_THAT(gemmaRefusal("transformer/layer_0/attn/q_einsum/w", {8, 6}),
              HasSubstr("expected [heads, hidden, head size]"));
  EXPECT_THAT(gemmaRefusal("transformer/layer_0/attn/kv_einsum/w", {3, 2, 4, 2}), HasSubstr("expected [modules"));
  EXPECT_THAT(gemmaRefusal("transformer/layer_0/attn/attn_vec_einsum/w", {48}), HasSubstr("expected [heads"));
  EXPECT_THAT(gemmaRefusal("transformer/layer_0/mlp/gating_einsum", {2, 3, 8}), HasSubstr("expected [2, hidden"));
  EXPECT_THAT(gemmaRefusal("transformer/layer_0/mlp/linear", {48}), HasSubstr("expected [intermediate"));
  for (const char* name :
       {"transformer/layer_0/attn/w", "transformer/layer_x/mlp/linear", "transformer/layer_0", "other"}) {
    EXPECT_THAT(gemmaRefusal(name, {48}), HasSubstr("none of DeepMind's Gemma"));
  }
}

}  // namespace
}  // namespace chorus
