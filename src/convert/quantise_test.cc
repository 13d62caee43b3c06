#include "convert/quantise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/quantise_row.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "convert/convert_model.h"
#include "models/architecture.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> randomFloats(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

// Reference for the quantisation of a row: the formulas of docs/quantization.md, in double precision.
struct Plain {
  std::vector<int> integers;
  std::vector<float> scales;
};
Plain plainly(std::span<const float> row, int bits, int64_t group, DType scale_dtype) {
  Plain result;
  const size_t each = group > 0 ? static_cast<size_t>(group) : row.size();
  const int top = bits == 8 ? 128 : 8;
  for (size_t begin = 0; begin < row.size(); begin += each) {
    double largest = 0;
    for (const float x : row.subspan(begin, each)) largest = std::max(largest, std::abs(double{x}));
    auto scale = static_cast<float>(largest / (group > 0 ? top - 1 : top));
    if (scale_dtype == DType::kBFloat16) scale = toFloat(toBf16(scale));
    if (scale_dtype == DType::kFloat16) scale = toFloat(toF16(scale));
    if (largest == 0) scale = 1;
    result.scales.push_back(scale);
    for (const float x : row.subspan(begin, each)) {
      const double steps = std::nearbyint(double{x / scale});
      result.integers.push_back(static_cast<int>(std::clamp(steps, -double(top), double(top - 1))));
    }
  }
  return result;
}

TEST(QuantiseRowTest, FollowsTheFormulas) {
  for (const int bits : {8, 4}) {
    for (const int64_t group : {0, 32, 64, 128}) {
      for (const DType scales : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        const WeightFormat format{bits == 8 ? DType::kInt8 : DType::kInt4, group, scales};
        auto row = randomFloats(384, 7);
        std::fill(row.begin() + 128, row.begin() + 256, 0.0f);
        std::vector<int8_t> integers(row.size());
        std::vector<float> found(group > 0 ? row.size() / static_cast<size_t>(group) : 1);
        quantiseRow(row.data(), std::ssize(row), format, integers.data(), found.data());
        const Plain expected = plainly(row, bits, group, scales);
        EXPECT_EQ(found, expected.scales);
        EXPECT_EQ(std::vector<int>(integers.begin(), integers.end()), expected.integers) << bits << " group " << group;
      }
    }
  }
}

TEST(QuantiseRowTest, TiesGoToEvenAndTheRangeIsNotSymmetric) {
  // int4 with one scale per output: the scale is 8 / 8 = 1.
  const std::vector<float> row = {-8.0f, 8.0f, 0.5f, 1.5f, 2.5f, -0.5f, -2.5f, 6.9f};
  std::vector<int8_t> integers(row.size());
  float scale = 0;
  quantiseRow(row.data(), std::ssize(row), {DType::kInt4, 0, DType::kFloat32}, integers.data(), &scale);
  EXPECT_EQ(scale, 1.0f);
  EXPECT_THAT(integers, ElementsAre(-8, 7, 0, 2, 2, 0, -2, 7));
}

TEST(QuantiseRowTest, ZerosAndWeightsBelowTheScalesTypeStayFinite) {
  std::vector<float> row(32, 0.0f);
  std::vector<int8_t> integers(row.size(), 5);
  float scale = 0;
  quantiseRow(row.data(), 32, {DType::kInt8, 0, DType::kFloat16}, integers.data(), &scale);
  EXPECT_EQ(scale, 1.0f);
  EXPECT_EQ(integers, std::vector<int8_t>(32, 0));
  row[3] = 1e-7f;  // divided by 128, it is zero in float16
  quantiseRow(row.data(), 32, {DType::kInt8, 0, DType::kFloat16}, integers.data(), &scale);
  EXPECT_EQ(scale, 0x1p-24f);
  EXPECT_EQ(integers[3], 2);
}

// Converts a small Llama model to checkpoints. Its linears have 64 inputs, except mlp.down_proj, which has 128.
class QuantisedCheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "quantise.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    fs::create_directory(dir_ / "model");
    const Json config = {{"architectures", {"LlamaForCausalLM"}},
                         {"hidden_size", 64},
                         {"intermediate_size", 128},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"vocab_size", 37},
                         {"max_position_embeddings", 128},
                         {"hidden_act", "silu"},
                         {"rms_norm_eps", 1e-5},
                         {"tie_word_embeddings", false},
                         {"torch_dtype", "float32"}};
    writeFileAtomically(dir_ / "model/config.json", config.dump());
    const auto add = [&](const std::string& tensor, std::vector<int64_t> shape) {
      size_t count = 1;
      for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
      weights_[tensor] = {shape, randomFloats(count, static_cast<uint32_t>(weights_.size()))};
    };
    add("model.embed_tokens.weight", {37, 64});
    add("model.norm.weight", {64});
    add("lm_head.weight", {37, 64});
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      add(layer + "input_layernorm.weight", {64});
      add(layer + "post_attention_layernorm.weight", {64});
      add(layer + "self_attn.q_proj.weight", {64, 64});
      add(layer + "self_attn.k_proj.weight", {32, 64});
      add(layer + "self_attn.v_proj.weight", {32, 64});
      add(layer + "self_attn.o_proj.weight", {64, 64});
      add(layer + "mlp.gate_proj.weight", {128, 64});
      add(layer + "mlp.up_proj.weight", {128, 64});
      add(layer + "mlp.down_proj.weight", {64, 128});
    }
    save();
  }
  void TearDown() override { fs::remove_all(dir_); }

  void save() {
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const auto& [name, tensor] : weights_) declarations.push_back({name, DType::kFloat32, tensor.first});
    SafetensorsWriter writer(dir_ / "model/model.safetensors", declarations);
    for (const auto& [name, tensor] : weights_) writer.write(name, 0, std::as_bytes(std::span(tensor.second)));
    writer.finish();
  }
  void convert(const QuantiseOptions& quantise, int32_t tp_size = 1, int32_t pp_size = 1) {
    convertModel(dir_ / "model", dir_ / "out",
                 {.tp_size = tp_size, .pp_size = pp_size, .quantise = quantise, .workers = 2});
  }
  std::string refusal(const QuantiseOptions& quantise, int32_t tp_size = 1) {
    return errorOf([&] { convert(quantise, tp_size); });
  }
  // The error message of reading the checkpoint.
  std::string readingIt() {
    return errorOf([&] {
      const CheckpointReader reader = CheckpointReader::open(dir_ / "out");
      reader.rank(0, findArchitecture(reader.config().architecture).weightTable(reader.config()));
    });
  }
  Safetensors rank(int32_t index = 0) { return Safetensors::open(dir_ / "out" / rankFileName(index)); }
  // Returns a weight of the checkpoint: its integer times its scale.
  static float weightOf(const Safetensors& file, const std::string& stem, int bits, int64_t out, int64_t in) {
    const TensorView& integers = *file.find(stem + "weight");
    const TensorView* groups = file.find(stem + "weights_scaling_factor");
    const TensorView& scales = groups != nullptr ? *groups : *file.find(stem + "per_channel_scale");
    const int64_t cols = integers.shape[1];
    auto integer = static_cast<int>(
        static_cast<int8_t>(integers.bytes[static_cast<size_t>((bits == 4 ? out / 2 : out) * cols + in)]));
    if (bits == 4) integer = out % 2 == 0 ? static_cast<int8_t>(static_cast<uint8_t>(integer) << 4) >> 4 : integer >> 4;
    const int64_t per_row = groups != nullptr ? groups->shape[1] : 1;
    const auto at = static_cast<size_t>(out * per_row + in * per_row / cols);
    return static_cast<float>(integer) * loadAsFloat(scales.bytes.data(), scales.dtype, at);
  }
  // Applies a change to the declared tensors of rank0.safetensors and writes the file again, with zeros as values.
  void edit(const std::function<void(std::map<std::string, SafetensorsWriter::Declaration>&)>& change) {
    const Safetensors file = rank();
    std::map<std::string, SafetensorsWriter::Declaration> tensors;
    for (const std::string& name : file.names()) {
      tensors[name] = {name, file.find(name)->dtype, file.find(name)->shape};
    }
    change(tensors);
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const auto& [name, declaration] : tensors) declarations.push_back(declaration);
    SafetensorsWriter writer(dir_ / "edited", declarations);
    for (const auto& declaration : declarations) {
      size_t bytes = dtypeSize(declaration.dtype);
      for (const int64_t extent : declaration.shape) bytes *= static_cast<size_t>(extent);
      writer.write(declaration.name, 0, std::vector<std::byte>(bytes));
    }
    writer.finish();
    fs::rename(dir_ / "edited", dir_ / "out" / rankFileName(0));
  }
  void editConfig(const std::function<void(Json&)>& change) {
    Json json = readJsonFile(dir_ / "out/config.json");
    change(json);
    writeFileAtomically(dir_ / "out/config.json", json.dump());
  }

  fs::path dir_;
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> weights_;
};

TEST_F(QuantisedCheckpointTest, LayoutsAndNamesArePlain) {
  const std::string proj = "transformer.layers.1.mlp.proj.";
  for (const auto& [quantise, shape, scale, scale_shape] :
       std::vector<std::tuple<QuantiseOptions, std::vector<int64_t>, std::string, std::vector<int64_t>>>{
           {{.bits = 8}, {64, 128}, "per_channel_scale", {64}},
           {{.bits = 4}, {32, 128}, "per_channel_scale", {64}},
           {{.bits = 8, .group_size = 64}, {64, 128}, "weights_scaling_factor", {64, 2}},
           {{.bits = 4, .group_size = 32}, {32, 128}, "weights_scaling_factor", {64, 4}}}) {
    convert(quantise);
    const Json config = readJsonFile(dir_ / "out/config.json");
    EXPECT_EQ(config["weight_layout"], "plain");
    EXPECT_EQ(config["quantization"]["quant_algo"], quantise.bits == 8 ? "W8A16" : "W4A16");
    EXPECT_EQ(config["quantization"]["group_size"], quantise.group_size);
    const Safetensors file = rank();
    EXPECT_EQ(file.find(proj + "weight")->shape, shape);
    EXPECT_EQ(file.find(proj + "weight")->dtype, DType::kInt8);
    EXPECT_EQ(file.find(proj + scale)->shape, scale_shape);
    EXPECT_EQ(file.find(proj + scale)->dtype, DType::kFloat32);
    for (const char* whole : {"lm_head.weight", "transformer.vocab_embedding.weight", "transformer.ln_f.weight"}) {
      EXPECT_EQ(file.find(whole)->dtype, DType::kFloat32) << whole;
    }
    const auto& source = weights_.at("model.layers.1.mlp.down_proj.weight").second;
    for (int64_t out = 0; out < 64; ++out) {
      const auto row = std::span(source).subspan(static_cast<size_t>(out) * 128, 128);
      const Plain expected = plainly(row, quantise.bits, quantise.group_size, DType::kFloat32);
      for (size_t i = 0; i < 128; ++i) {
        const size_t g = quantise.group_size > 0 ? i / static_cast<size_t>(quantise.group_size) : 0;
        ASSERT_EQ(weightOf(file, proj, quantise.bits, out, static_cast<int64_t>(i)),
                  static_cast<float>(expected.integers[i]) * expected.scales[g]);
      }
    }
    EXPECT_EQ(readingIt(), "");
  }
  EXPECT_THAT(refusal({.bits = 8, .group_size = 128}),
              HasSubstr("attention.qkv.weight: group size 128 does not divide the 64 inputs"));
}

// Whichever way a tensor is cut, the ranks together hold what a single rank holds.
TEST_F(QuantisedCheckpointTest, ShardsAreCutFromTheQuantisedWhole) {
  for (const QuantiseOptions& quantise : {QuantiseOptions{.bits = 8}, {.bits = 4}, {.bits = 4, .group_size = 32}}) {
    convert(quantise);
    const Safetensors whole = rank();
    convert(quantise, 2, 2);
    for (int32_t r = 0; r < 4; ++r) {
      const Safetensors part = rank(r);
      const std::string from = "transformer.layers." + std::to_string(r / 2) + ".";
      for (int64_t out = 0; out < 64; ++out) {
        for (int64_t in = 0; in < 64; ++in) {
          ASSERT_EQ(weightOf(part, "transformer.layers.0.mlp.proj.", quantise.bits, out, in),
                    weightOf(whole, from + "mlp.proj.", quantise.bits, out, r % 2 * 64 + in));
          ASSERT_EQ(weightOf(part, "transformer.layers.0.mlp.fc.", quantise.bits, out, in),
                    weightOf(whole, from + "mlp.fc.", quantise.bits, r % 2 * 64 + out, in));
          // q, k and v are cut separately.
          const int64_t q = out < 32   ? r % 2 * 32 + out
                            : out < 48 ? 64 + r % 2 * 16 + out - 32
                                       : 96 + r % 2 * 16 + out - 48;
          ASSERT_EQ(weightOf(part, "transformer.layers.0.attention.qkv.", quantise.bits, out, in),
                    weightOf(whole, from + "attention.qkv.", quantise.bits, q, in));
        }
      }
    }
    EXPECT_EQ(readingIt(), "");
  }
  EXPECT_THAT(refusal({.bits = 8, .group_size = 64}, 2),
              HasSubstr("attention.dense.weight: group size 64 does not divide the 32 inputs of a rank"));
}

TEST_F(QuantisedCheckpointTest, TheHeadIsQuantisedWhenAskedFor) {
  convert({.bits = 8, .quantise_head = true});
  EXPECT_EQ(rank().find("lm_head.weight")->dtype, DType::kInt8);
  EXPECT_EQ(rank().find("lm_head.per_channel_scale")->shape, std::vector<int64_t>{37});
  EXPECT_EQ(readingIt(), "");
  EXPECT_THAT(refusal({.bits = 4, .quantise_head = true}),
              HasSubstr("lm_head.weight: 37 rows on a rank cannot be int4"));
  convert({.bits = 4, .quantise_head = true}, 4);  // 10 rows a rank, the last three of padding
  for (int64_t in = 0; in < 64; ++in) EXPECT_EQ(weightOf(rank(3), "lm_head.", 4, 9, in), 0.0f);
  EXPECT_EQ(readingIt(), "");
}

TEST_F(QuantisedCheckpointTest, NonFiniteWeightsAndTiedHeadsAreRefusedByName) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    float& weight = weights_.at("model.layers.1.mlp.up_proj.weight").second[77];
    const float kept = std::exchange(weight, bad);
    save();
    EXPECT_THAT(refusal({.bits = 4}),
                HasSubstr("'model.layers.1.mlp.up_proj.weight' holds a value that is not finite"));
    EXPECT_FALSE(fs::exists(dir_ / "out"));
    weight = kept;
  }
  weights_.erase("lm_head.weight");
  save();
  Json config = readJsonFile(dir_ / "model/config.json");
  config["tie_word_embeddings"] = true;
  writeFileAtomically(dir_ / "model/config.json", config.dump());
  EXPECT_EQ(refusal({.bits = 8}), "");
  EXPECT_THAT(refusal({.bits = 8, .quantise_head = true}), HasSubstr("--quantize_lm_head"));
}

TEST_F(QuantisedCheckpointTest, MalformedCheckpointsAreRefusedByName) {
  const std::string fc = "transformer.layers.0.mlp.fc.";
  convert({.bits = 4, .group_size = 32});
  edit([&](auto& tensors) { tensors.erase(fc + "weights_scaling_factor"); });
  EXPECT_THAT(readingIt(), HasSubstr("Required but not provided tensors: " + fc + "weights_scaling_factor"));
  edit([&](auto& tensors) {
    tensors[fc + "weights_scaling_factor"] = {fc + "weights_scaling_factor", DType::kFloat32, {128, 1}};
  });
  EXPECT_NE(readingIt(), "");
  convert({.bits = 4, .group_size = 32});
  edit([&](auto& tensors) { tensors[fc + "weight"].shape = {128, 64}; });
  EXPECT_THAT(readingIt(), HasSubstr(fc + "weight' has shape [128, 64], config.json asks for [64, 64]"));
  convert({.bits = 4, .group_size = 32});
  edit([&](auto& tensors) { tensors[fc + "weight"].dtype = DType::kUint8; });
  EXPECT_EQ(readingIt(), "") << "bytes of two integers have no sign";
  edit([&](auto& tensors) { tensors[fc + "weight"].dtype = DType::kFloat16; });
  EXPECT_THAT(readingIt(), HasSubstr("is float16, config.json asks for int8"));
  convert({.bits = 8});
  edit([&](auto& tensors) { tensors[fc + "per_channel_scale"].dtype = DType::kInt8; });
  EXPECT_THAT(readingIt(), HasSubstr("per_channel_scale' is int8"));
}

TEST_F(QuantisedCheckpointTest, ConfigsAreHeldToWhatTheFilesHave) {
  convert({.bits = 8});
  editConfig([](Json& json) { json["quantization"]["group_size"] = 128; });
  EXPECT_EQ(readingIt(), "") << "a default that some converters write where no group is";
  EXPECT_EQ(CheckpointReader::open(dir_ / "out").config().quantization.group_size, 0);
  convert({.bits = 8, .group_size = 64});
  editConfig([](Json& json) { json["quantization"]["group_size"] = 32; });
  EXPECT_THAT(readingIt(), HasSubstr("quantization.group_size is 32 where"));
  editConfig([](Json& json) {
    json["quantization"]["group_size"] = 64, json["quantization"]["quant_algo"] = "W8A8_PER_TOKEN";
    json["dtype"] = "bfloat16";
  });
  EXPECT_THAT(readingIt(),
              HasSubstr("W8A8_PER_TOKEN (--activations int8_per_token) needs weights with one scale for each output"));
  convert({.bits = 8});
  editConfig([](Json& json) { json.erase("weight_layout"); });
  EXPECT_THAT(readingIt(), HasSubstr("weight_layout missing"));
  editConfig([](Json& json) { json["weight_layout"] = "interleaved"; });
  EXPECT_THAT(readingIt(), HasSubstr("weight_layout 'interleaved'"));
  editConfig([](Json& json) { json["weight_layout"] = "plain", json["quantization"]["quant_algo"] = "W4A16_AWQ"; });
  EXPECT_THAT(readingIt(),
              HasSubstr("quant_algo 'W4A16_AWQ' is not supported; W8A16, W4A16, W8A8, W4A8 and W8A8_PER_TOKEN are"));
  editConfig(
      [](Json& json) { json["quantization"]["quant_algo"] = "W8A16", json["quantization"]["has_zero_point"] = true; });
  EXPECT_THAT(readingIt(), HasSubstr("has_zero_point is not supported with W8A16"));
  convert({.bits = 8});
  editConfig([](Json& json) { json["quantization"]["exclude_modules"] = {"*lm_head", "*.1.mlp.proj"}; });
  EXPECT_THAT(readingIt(), HasSubstr("transformer.layers.1.mlp.proj.weight' is int8, config.json asks for float32"));
}

}  // namespace
}  // namespace chorus
