#include "convert/dora_normalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "formats/safetensors.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Tests with a DoRA module of rank 3 on a base of another dtype.
class DoraNormalizeTest : public testing::Test {
 protected:
  static constexpr int64_t kOut = 70, kIn = 37, kRank = 3;
  std::string key_ = "base_model.model.model.layers.0.self_attn.q_proj.";

  DoraNormalizeTest() {
    std::string name = testing::TempDir() + "dora_normalize.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
    dir_ = name;
    fs::create_directories(dir_ / "base");
    fs::create_directories(dir_ / "adapter");
    std::mt19937 rng(11);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t count) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = normal(rng);
      return values;
    };
    weight_ = fill(kOut * kIn);
    a_ = fill(kRank * kIn);
    b_ = fill(kOut * kRank);
    magnitude_ = fill(kOut);
    for (float& value : weight_) value = toFloat(toBf16(value));
    setConfig(Json::object());
  }
  ~DoraNormalizeTest() override { fs::remove_all(dir_); }

  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    const std::vector<float>& values;
    DType dtype = DType::kFloat32;
  };
  static void write(const fs::path& path, const std::vector<Tensor>& tensors) {
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const Tensor& t : tensors) declarations.push_back({t.name, t.dtype, t.shape});
    SafetensorsWriter writer(path, declarations);
    for (const Tensor& t : tensors) {
      std::vector<std::byte> bytes(t.values.size() * dtypeSize(t.dtype));
      convertElements(t.values.data(), DType::kFloat32, bytes.data(), t.dtype, t.values.size());
      writer.write(t.name, 0, bytes);
    }
    writer.finish();
  }
  void setConfig(const Json& changes) {
    Json config = {{"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 5}, {"use_dora", true}};
    config.update(changes);
    writeFileAtomically(dir_ / "adapter/adapter_config.json", config.dump());
  }
  void writeFiles(const std::string& base_name, const std::string& magnitude_name = "lora_magnitude_vector") {
    write(dir_ / "base/model.safetensors", {{base_name, {kOut, kIn}, weight_, DType::kBFloat16}});
    write(dir_ / "adapter/adapter_model.safetensors", {{key_ + "lora_A.weight", {kRank, kIn}, a_},
                                                       {key_ + "lora_B.weight", {kOut, kRank}, b_},
                                                       {key_ + magnitude_name, {kOut}, magnitude_}});
  }
  DoraNormalisation normalise(bool strip = false) {
    return normaliseDora(dir_ / "adapter", dir_ / "base", dir_ / "out", strip);
  }
  std::string refusal() {
    const std::string line = errorOf([&] { normalise(); });
    EXPECT_FALSE(fs::exists(dir_ / "out"));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2) << "only base and adapter";
    return line;
  }
  // Computes the expected magnitudes in double precision.
  std::vector<double> expected(double scale) const {
    std::vector<double> result;
    for (int64_t o = 0; o < kOut; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < kIn; ++i) {
        double x = weight_[static_cast<size_t>(o * kIn + i)];
        for (int64_t r = 0; r < kRank; ++r) {
          x += scale * b_[static_cast<size_t>(o * kRank + r)] * a_[static_cast<size_t>(r * kIn + i)];
        }
        sum += x * x;
      }
      result.push_back(magnitude_[static_cast<size_t>(o)] / std::sqrt(sum));
    }
    return result;
  }
  void expectMagnitudes(double scale, const std::string& name = "lora_magnitude_vector") {
    const Safetensors out = Safetensors::open(dir_ / "out/adapter_model.safetensors");
    const TensorView* vector = out.find(key_ + name);
    ASSERT_NE(vector, nullptr);
    EXPECT_EQ(vector->shape, std::vector<int64_t>{kOut});
    const std::vector<double> exact = expected(scale);
    for (size_t o = 0; o < exact.size(); ++o) {
      EXPECT_NEAR(loadAsFloat(vector->bytes.data(), vector->dtype, o), exact[o], 1e-6 * std::abs(exact[o])) << o;
    }
    const Safetensors in = Safetensors::open(dir_ / "adapter/adapter_model.safetensors");
    for (const char* part : {"lora_A.weight", "lora_B.weight"}) {
      const auto before = in.find(key_ + part)->bytes, after = out.find(key_ + part)->bytes;
      EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin(), after.end())) << part;
    }
  }

  fs::path dir_;
  std::vector<float> weight_, a_, b_, magnitude_;
};

TEST_F(DoraNormalizeTest, DividesByTheRowNormOfTheWholeWeight) {
  writeFiles("model.layers.0.self_attn.q_proj.weight");
  EXPECT_TRUE(normalise().used_dora);
  expectMagnitudes(5.0 / kRank);
  setConfig({{"use_rslora", true}, {"alpha_pattern", {{"q_proj", 2}}}});
  EXPECT_EQ(normalise().modules, 1) << "over its earlier result";
  expectMagnitudes(2 / std::sqrt(3.0));
}

TEST_F(DoraNormalizeTest, AnAdapterAsItWasTrainedIsNotReplaced) {
  writeFiles("model.layers.0.self_attn.q_proj.weight");
  const fs::path trained = dir_ / "adapter";
  const auto overItself = [&](bool strip) { normaliseDora(trained, dir_ / "base", trained, strip); };
  EXPECT_THAT(errorOf([&] { overItself(false); }), HasSubstr("choose another output directory"));
  EXPECT_THAT(errorOf([&] { overItself(true); }), HasSubstr("choose another output directory"));
  EXPECT_EQ(normalise().modules, 1);
  expectMagnitudes(5.0 / kRank);
  fs::remove_all(dir_ / "out");
  EXPECT_EQ(normalise(true).modules, 1);
  EXPECT_EQ(normalise(true).modules, 1) << "over its earlier result";
}

TEST_F(DoraNormalizeTest, FindsTheWeightWithAnotherPrefixAndTakesDorasOwnFiles) {
  writeFiles("layers.0.self_attn.q_proj.weight", "weight_m_wdecomp.weight");
  setConfig({{"peft_type", "DORA"}, {"dora_simple", true}, {"enable_lora", nullptr}});
  normalise();
  expectMagnitudes(5.0 / kRank, "weight_m_wdecomp.weight");
  const Json config = readJsonFile(dir_ / "out/adapter_config.json");
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("use_dora"), true);
}

TEST_F(DoraNormalizeTest, TheBaseOfFanInFanOutStandsTransposed) {
  writeFiles("model.layers.0.self_attn.q_proj.weight");
  setConfig({{"fan_in_fan_out", true}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("shape [70, 37]"), HasSubstr("[37, 70]")));
  std::vector<float> transposed(weight_.size());
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t i = 0; i < kIn; ++i) {
      transposed[static_cast<size_t>(i * kOut + o)] = weight_[static_cast<size_t>(o * kIn + i)];
    }
  }
  write(dir_ / "base/model.safetensors",
        {{"model.layers.0.self_attn.q_proj.weight", {kIn, kOut}, transposed, DType::kBFloat16}});
  normalise();
  expectMagnitudes(5.0 / kRank);
}

TEST_F(DoraNormalizeTest, StrippingLeavesAPlainLora) {
  writeFiles("model.layers.0.self_attn.q_proj.weight");
  normalise(true);
  EXPECT_EQ(readJsonFile(dir_ / "out/adapter_config.json").at("use_dora"), false);
  EXPECT_EQ(Safetensors::open(dir_ / "out/adapter_model.safetensors").names().size(), 2u);
}

TEST_F(DoraNormalizeTest, EachRefusalIsOneLine) {
  writeFiles("model.layers.1.self_attn.q_proj.weight");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("base"), HasSubstr("no tensor 'model.layers.0.self_attn.q_proj.weight'")));
  writeFiles("model.layers.0.self_attn.q_proj.weight");
  write(dir_ / "base/model.safetensors", {{"model.layers.0.self_attn.q_proj.weight", {kIn, kOut}, weight_}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("shape [37, 70]"), HasSubstr("[70, 37]")));
  std::fill(weight_.begin() + 2 * kIn, weight_.begin() + 3 * kIn, 0.0f);
  std::fill(b_.begin() + 2 * kRank, b_.begin() + 3 * kRank, 0.0f);
  writeFiles("model.layers.0.self_attn.q_proj.weight");
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.0.self_attn.q_proj': row 2"));
  setConfig({{"magnitude_is_normalised", true}});
  EXPECT_THAT(refusal(), HasSubstr("normalised already"));
  setConfig({{"use_dora", false}});
  EXPECT_THAT(refusal(), HasSubstr("does not set use_dora"));
  key_ = "base_model.model.lm_head.";
  writeFiles("lm_head.weight");
  setConfig({{"target_modules", "all-linear"}});
  EXPECT_THAT(refusal(), HasSubstr("'base_model.model.lm_head.lora_A.weight' is of the embedding or the output head"));
  fs::remove_all(dir_ / "base");
  fs::create_directory(dir_ / "base");
  setConfig(Json::object());
  EXPECT_THAT(refusal(), HasSubstr("no weights"));
}

}  // namespace
}  // namespace chorus
