// Tests that an adapter is read with the same bits from the layouts of several tools, and that malformed layouts are
// refused in one line.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <regex>

#include "lora/adapter_files.h"
#include "lora/adapter_values.h"
#include "lora/module_spellings.h"
#include "lora/peft_config.h"
#include "lora/testing/peft_directory.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kRank = 2;
const std::string kPeft = "base_model.model.";

struct Linear {
  std::string name;  // in a layer
  int64_t in, out;
};

void expectSameBits(const Adapter& one, const Adapter& other) {
  ASSERT_EQ(one.modules.size(), other.modules.size());
  for (size_t i = 0; i < one.modules.size(); ++i) {
    const AdapterModule &a = one.modules[i], &b = other.modules[i];
    SCOPED_TRACE(fmt::format("{} of layer {}", a.module_name, a.layer));
    EXPECT_EQ(std::tie(a.module_id, a.layer, a.expert, a.rank, a.in, a.out, a.dtype),
              std::tie(b.module_id, b.layer, b.expert, b.rank, b.in, b.out, b.dtype));
    EXPECT_EQ(a.scale, b.scale);
    EXPECT_EQ(a.magnitude, b.magnitude);
    EXPECT_EQ(a.magnitude_is_normalised, b.magnitude_is_normalised);
    EXPECT_TRUE(std::equal(a.a, a.a + a.aBytes(), b.a));
    EXPECT_TRUE(std::equal(a.b, a.b + a.bBytes(), b.b));
  }
}

class AdapterLayoutsTest : public PeftDirectoryTest {
 protected:
  using Tensors = decltype(tensors_);

  AdapterLayoutsTest() { writePeft(false); }

  // PEFT's layout, and the adapter that it is read as.
  void writePeft(bool dora) {
    tensors_.clear();
    config_ = {{"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 6}, {"use_dora", dora}};
    config_["target_modules"] = {"q_proj", "k_proj", "down_proj"};
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
      for (const Linear& linear : linears_) {
        const std::string module = kPeft + layer + linear.name;
        const auto first = static_cast<float>(100 * tensors_.size());
        put(module + ".lora_A.weight", {kRank, linear.in}, first + 1);
        put(module + ".lora_B.weight", {linear.out, kRank}, first + 31);
        if (dora) put(module + ".lora_magnitude_vector", {linear.out}, first + 61);
      }
    }
    peft_ = tensors_;
    expected_.emplace(read());
  }
  // Renames all tensors of PEFT's layout.
  void rename(const std::function<std::string(std::string)>& renamed) {
    tensors_.clear();
    for (const auto& [name, tensor] : peft_) tensors_[renamed(name)] = tensor;
    EXPECT_EQ(tensors_.size(), peft_.size());
  }
  void rename(const std::string& pattern, const std::string& replacement) {
    rename([&](const std::string& name) { return std::regex_replace(name, std::regex(pattern), replacement); });
  }
  void expectSame(const std::string& what) {
    SCOPED_TRACE(what);
    const Adapter adapter = read();
    EXPECT_THAT(adapter.left_out, IsEmpty());
    expectSameBits(*expected_, adapter);
  }

  static void transpose(std::pair<std::vector<int64_t>, std::vector<float>>& tensor) {
    auto& [shape, values] = tensor;
    const std::vector<float> old = values;
    for (int64_t r = 0; r < shape[0]; ++r) {
      for (int64_t c = 0; c < shape[1]; ++c) {
        values[static_cast<size_t>(c * shape[0] + r)] = old[static_cast<size_t>(r * shape[1] + c)];
      }
    }
    std::swap(shape[0], shape[1]);
  }
  // mlx-lm's layout.
  void writeMlx(bool dora) {
    rename([](std::string name) {
      name = std::regex_replace(name, std::regex("^base_model\\.model\\.|\\.weight$"), "");
      name = std::regex_replace(name, std::regex("lora_magnitude_vector"), "m");
      name = std::regex_replace(name, std::regex("lora_A"), "lora_a");
      return std::regex_replace(name, std::regex("lora_B"), "lora_b");
    });
    for (auto& [name, tensor] : tensors_) {
      if (tensor.first.size() == 2) transpose(tensor);
    }
    config_ = {{"fine_tune_type", dora ? "dora" : "lora"},
               {"num_layers", 2},
               {"lora_parameters", {{"rank", kRank}, {"scale", 3.0}, {"dropout", 0.0}}},
               {"model", "mlx-community/a-model"},
               {"lr_schedule", nullptr},
               {"batch_size", 4}};
  }
  // torchtune's layout: in a head of q and k, the halves of Hugging Face's rows are adjacent pairs.
  void writeTorchtune(bool dora, bool pairs) {
    rename([](std::string name) {
      name = std::regex_replace(name, std::regex("^base_model\\.model\\.model\\."), "");
      name = std::regex_replace(name, std::regex("self_attn"), "attn");
      name = std::regex_replace(name, std::regex("down_proj"), "w2");
      name = std::regex_replace(name, std::regex("lora_magnitude_vector"), "magnitude");
      name = std::regex_replace(name, std::regex("lora_A"), "lora_a");
      return std::regex_replace(name, std::regex("lora_B"), "lora_b");
    });
    config_ = {{"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 6}, {"use_dora", dora}};
    config_["target_modules"] = {"q_proj", "k_proj", "w2"};
    if (!pairs) return;
    const auto head = static_cast<size_t>(model_.config.head_size), half = head / 2;
    for (auto& [name, tensor] : tensors_) {
      if (name.find("attn") == std::string::npos || name.find("lora_a") != std::string::npos) continue;
      const std::vector<float> old = tensor.second;
      const auto rows = static_cast<size_t>(tensor.first[0]), columns = old.size() / rows;
      for (size_t row = 0; row < rows; ++row) {
        const size_t in_head = row % head;
        const size_t to = row - in_head + (in_head % half) * 2 + in_head / half;
        std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(row * columns), columns,
                    tensor.second.begin() + static_cast<std::ptrdiff_t>(to * columns));
      }
    }
  }

  void setTorchtuneRows(TorchtuneRows rows) {
    for (LoraTarget& target : model_.table[0].lora_targets) target.torchtune_rows = rows;
  }

  std::vector<Linear> linears_ = {{"self_attn.q_proj", 4, 4}, {"self_attn.k_proj", 4, 2}, {"mlp.down_proj", 6, 4}};
  Tensors peft_;
  std::optional<Adapter> expected_;
};

TEST_F(AdapterLayoutsTest, PrefixesOfTrainersAndOfModels) {
  const std::string model = "^base_model\\.model\\.model\\.";
  for (const char* prefix :
       {"model.", "", "base_model.model.", "base_model.model.base_model.model.model.", "module.model.",
        "module.base_model.model.model.", "base_model.model.module.model.",
        "_fsdp_wrapped_module.base_model.model.model.", "base_model.model._orig_mod.model.",
        "_forward_module.base_model.model.model.", "pretrained_model.model.", "base_model.model.language_model.model.",
        "base_model.model.model.language_model.", "language_model.", "language_model.model.",
        "base_model.model.model.text_model.", "base_model.model.transformer."}) {
    rename(model, prefix);
    expectSame(prefix);
  }
}

TEST_F(AdapterLayoutsTest, WrappersInsideNamesAndNamesOfAdapters) {
  rename("layers\\.(\\d)\\.(\\w+)\\.", "layers.$1._fsdp_wrapped_module._checkpoint_wrapped_module.$2._orig_mod.");
  expectSame("wrappers");
  for (const char* name : {"default", "policy", "sft-2"}) {
    rename("\\.(lora_[AB])\\.weight", fmt::format(".$1.{}.weight", name));
    expectSame(name);
  }
  rename("\\.weight$", "");
  expectSame("loralib");
}

TEST_F(AdapterLayoutsTest, MagnitudesOfDora) {
  writePeft(true);
  rename("lora_magnitude_vector$", "lora_magnitude_vector.weight");
  expectSame("weight");
  rename("lora_magnitude_vector$", "lora_magnitude_vector.default.weight");
  expectSame("default");
  for (const bool is_column : {false, true}) {
    rename("lora_magnitude_vector$", "weight_m_wdecomp.weight");
    for (auto& [name, tensor] : tensors_) {
      if (tensor.first.size() == 1) tensor.first.insert(is_column ? tensor.first.end() : tensor.first.begin(), 1);
    }
    const Json config = config_;
    config_["peft_type"] = "DORA";
    config_["dora_simple"] = true;
    config_.erase("use_dora");
    expectSame("the authors'");
    config_ = config;
  }
}

TEST_F(AdapterLayoutsTest, MlxIsTransposedAndHasItsOwnScale) {
  for (const bool dora : {false, true}) {
    writePeft(dora);
    writeMlx(dora);
    expectSame("now");
    config_.erase("fine_tune_type");
    config_.erase("num_layers");
    config_["lora_layers"] = 16;
    config_["use_dora"] = dora;
    expectSame("until September 2024");
    if (!dora) {
      config_["lora_parameters"] = {{"rank", kRank}, {"alpha", 4}, {"scale", 3.0}, {"dropout", 0.05}};
      expectSame("alpha is ignored");
      config_["lora_parameters"]["scale"] = 1.5;
      config_.erase("use_dora");
      expectSame("until May 2024");
    }
    config_["num_layers"] = -1;
    config_.erase("lora_layers");
    config_["lora_parameters"] = {{"rank", kRank}, {"alpha", 4}, {"scale", 3}, {"keys", Json::array()}};
    config_["lora_parameters"]["keys"] = {"self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"};
    expectSame("with keys");
  }
}

TEST_F(AdapterLayoutsTest, DocumentationShowsTheFieldsOfMlx) {
  EXPECT_THAT(readFile(test::sourceDir() / "docs/adapter_config.md", 1 << 20), HasSubstr(mlxFieldsMarkdown()));
}

TEST_F(AdapterLayoutsTest, MlxRefusals) {
  writeMlx(false);
  const Json config = config_;
  const auto refusalWith = [&](const std::function<void(Json&)>& change) {
    config_ = config;
    change(config_);
    const std::string line = refusal();
    config_ = config;
    return line;
  };
  const auto withParameter = [&](const char* name, const Json& value) {
    return refusalWith([&](Json& c) { c["lora_parameters"][name] = value; });
  };
  EXPECT_THAT(withParameter("rank", 0), HasSubstr("'lora_parameters.rank' must be a whole number of at least 1"));
  EXPECT_THAT(withParameter("rank", nullptr), HasSubstr("'lora_parameters.rank'"));
  EXPECT_THAT(withParameter("rank", 3), AllOf(HasSubstr("has shape [6, 2], expected [6, 3]")));
  EXPECT_THAT(withParameter("scale", "big"), HasSubstr("'lora_parameters.scale' must be a number"));
  EXPECT_THAT(withParameter("scale", nullptr), HasSubstr("'lora_parameters.scale' must be a number"));
  EXPECT_THAT(withParameter("scale", 1e300), HasSubstr("out of range"));
  EXPECT_THAT(withParameter("keys", {"self_attn.q_proj"}), HasSubstr("is not among the modules"));
  EXPECT_THAT(withParameter("keys", "self_attn.q_proj"), HasSubstr("'lora_parameters.keys' must be a list of names"));
  EXPECT_THAT(refusalWith([](Json& c) { c["lora_parameters"] = 3; }), HasSubstr("'lora_parameters' must be an object"));
  EXPECT_THAT(refusalWith([](Json& c) { c["fine_tune_type"] = "qlora"; }), HasSubstr("'fine_tune_type' qlora"));
  EXPECT_THAT(refusalWith([](Json& c) { c["num_layers"] = "all"; }), HasSubstr("'num_layers' must be"));
  EXPECT_THAT(refusalWith([](Json& c) { c["num_layers"] = 1; }),
              AllOf(HasSubstr("layers.0."), HasSubstr("adapts only the last 1 of 2 layers")));
  EXPECT_THAT(refusalWith([](Json& c) { c["fine_tune_type"] = "dora"; }), HasSubstr("has no lora_magnitude_vector"));
  put("model.layers.1.self_attn.q_proj.m", {4});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("q_proj.m'"), HasSubstr("does not set use_dora")));
}

TEST_F(AdapterLayoutsTest, MlxAdaptsTheHeadWithATiedEmbedding) {
  writeMlx(false);
  tensors_.clear();
  put("model.embed_tokens.lora_a", {8, kRank}, 1);
  put("model.embed_tokens.lora_b", {kRank, 4}, 51);
  EXPECT_EQ(read().modules.size(), 1u);
  model_.config.tie_word_embeddings = true;
  const Adapter adapter = read();
  ASSERT_EQ(adapter.modules.size(), 2u);
  const AdapterModule &embedding = adapter.modules[0], &head = adapter.modules[1];
  EXPECT_EQ(embedding.module_id, kTokenEmbedding);
  EXPECT_EQ(head.module_id, kOutputHead);
  EXPECT_EQ(loadAsFloat(embedding.a, DType::kFloat32, 1), 3.0f);
  EXPECT_EQ(loadAsFloat(embedding.b, DType::kFloat32, 1), 55.0f);
  EXPECT_EQ(loadAsFloat(head.a, DType::kFloat32, 1), 52.0f);
  EXPECT_EQ(loadAsFloat(head.b, DType::kFloat32, 1), 2.0f);
  put("lm_head.lora_a", {4, kRank});
  put("lm_head.lora_b", {kRank, 8});
  EXPECT_THAT(refusal(), HasSubstr("adapts the output head too"));
}

TEST_F(AdapterLayoutsTest, MlxReplacesWeightsOfTheLastLayers) {
  writeMlx(false);
  tensors_.clear();
  config_["fine_tune_type"] = "full";
  config_["num_layers"] = 1;
  put("model.layers.1.self_attn.q_proj.weight", {4, 4}, 5);
  put("model.layers.1.self_attn.q_proj.bias", {4}, 25);
  put("model.layers.1.input_layernorm.weight", {4}, 35);
  const Adapter adapter = read();
  ASSERT_EQ(adapter.weights.size(), 3u);
  EXPECT_THAT(adapter.modules, IsEmpty());
  EXPECT_EQ(adapter.without_effect, "");
  // mlx-lm transposes GPT-2's weights when it reads the model.
  for (WeightRow& row : model_.table) row.sources.front().transform.transposed = row.shape.size() == 2;
  EXPECT_EQ(loadAsFloat(read().weights[0].data, DType::kFloat32, 1),
            loadAsFloat(adapter.weights[0].data, DType::kFloat32, 1));
  put("model.layers.1.mlp.switch_mlp.up_proj.weight", {2, 4, 4}, 5);
  EXPECT_THAT(refusal(), HasSubstr("switch_mlp.up_proj.weight' adapts no module"));
}

TEST_F(AdapterLayoutsTest, TorchtuneHasItsOwnNamesAndOrderOfRows) {
  model_.config.num_attention_heads = 1;
  model_.config.head_size = 4;
  for (LoraTarget& target : model_.table[0].lora_targets) {
    if (target.module_id == kAttnK) target.rows = 4;  // one head of keys
    if (target.module_id == kAttnV) target.row_begin = 8;
  }
  linears_[1].out = 4;
  for (const bool dora : {false, true}) {
    writePeft(dora);
    writeTorchtune(dora, true);
    expectSame("pairs");
    config_["target_modules"] = {"q_proj", "k_proj", "down_proj"};
    expectSame("with PEFT's names of modules");
    setTorchtuneRows(TorchtuneRows::kAsInSource);
    writeTorchtune(dora, false);
    expectSame("as in the source");
    setTorchtuneRows(TorchtuneRows::kUnknown);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("torchtune"), HasSubstr(model_.config.architecture)));
    setTorchtuneRows(TorchtuneRows::kPairs);
  }
}

TEST_F(AdapterLayoutsTest, TwoSpellingsOfOneTensorAreRefused) {
  const auto refusalBeside = [&](const std::string& name, const std::vector<int64_t>& shape) {
    tensors_ = peft_;
    put(name, shape);
    return refusal();
  };
  const std::string q = kPeft + "model.layers.0.self_attn.q_proj.";
  for (const std::string& name : {q + "lora_B.default.weight", q + "lora_B", "module." + q + "lora_B.weight",
                                  std::string("layers.0.self_attn.q_proj.lora_B.weight"),
                                  std::string("language_model.model.layers.0.self_attn.q_proj.lora_B.weight"),
                                  std::string("model.layers.0.attn.q_proj.lora_B.weight")}) {
    EXPECT_THAT(refusalBeside(name, {4, kRank}),
                AllOf(HasSubstr("is for the same weights as"), HasSubstr("'" + name + "'")));
  }
  EXPECT_THAT(refusalBeside("layers.0.attn.q_proj.lora_b.weight", {4, kRank}), HasSubstr("is for the same weights as"));
  tensors_ = peft_;
  tensors_.erase(q + "lora_B.weight");
  put("model.layers.0.self_attn.q_proj.lora_b", {kRank, 4});
  EXPECT_THAT(refusal(), HasSubstr("is of a module of which other tensors have the names of another tool"));

  tensors_ = peft_;
  config_["target_modules"].push_back("qkv_proj");
  config_["target_modules"].push_back("W_pack");
  put(kPeft + "model.layers.0.self_attn.W_pack.lora_A.weight", {kRank, 4});
  put(kPeft + "model.layers.0.self_attn.W_pack.lora_B.weight", {8, kRank});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("adapts the same weights as another module"), HasSubstr("W_pack")));
  tensors_.erase(q + "lora_A.weight");
  tensors_.erase(q + "lora_B.weight");
  tensors_.erase(kPeft + "model.layers.0.self_attn.k_proj.lora_A.weight");
  tensors_.erase(kPeft + "model.layers.0.self_attn.k_proj.lora_B.weight");
  EXPECT_EQ(read().modules.size(), 5u);
}

TEST_F(AdapterLayoutsTest, NamesOfOtherModelsPartsAreRefused) {
  for (const char* prefix : {"vision_tower.", "visual.", "encoder.", "model.vision_model.encoder."}) {
    tensors_ = peft_;
    put(std::string(prefix) + "layers.0.self_attn.q_proj.lora_A.weight", {kRank, 4});
    EXPECT_THAT(refusal(), AllOf(HasSubstr(prefix), HasSubstr("adapts no module")));
  }
  for (const char* module : {"encoder_attn.q_proj", "EncDecAttention.k", "cross_attn.out_proj"}) {
    tensors_ = peft_;
    const std::string name = fmt::format("{}model.layers.0.{}.lora_A.weight", kPeft, module);
    put(name, {kRank, 4});
    EXPECT_THAT(refusal(), HasSubstr(name + "' adapts no module of LlamaForCausalLM")) << "it has no cross attention";
  }
  for (const char* name : {"model.layers.0.self_attn.q_proj.lora_C.weight", "lora_A.weight", "x", ".lora_A.weight",
                           "model.layers.0.self_attn.q_proj.lora_a.default", "optimizer.state", ""}) {
    tensors_ = peft_;
    put(name, {kRank, 4});
    EXPECT_THAT(refusal(), HasSubstr(fmt::format("tensor '{}'", name)));
  }
}

// Patterns match the name that a module had in training, or its name in the base model.
TEST_F(AdapterLayoutsTest, PatternsMatchBothNamesOfAModule) {
  rename("^base_model\\.model\\.model\\.", "base_model.model.model.language_model.");
  config_["target_modules"] = "model\\.language_model\\.layers\\.\\d\\..*(q_proj|k_proj|down_proj)";
  expectSame("the name in training");
  config_["target_modules"] = "model\\.layers\\.\\d\\..*(q_proj|k_proj|down_proj)";
  expectSame("the name in the base model");
  config_["target_modules"] = "visual\\..*";
  EXPECT_THAT(refusal(), HasSubstr("is not among the modules"));
  config_["target_modules"] = {"q_proj", "k_proj", "down_proj"};
  for (const char* name : {"model.language_model.layers.0.mlp.down_proj", "^model.layers.0.mlp.down_proj"}) {
    config_["alpha_pattern"] = {{name, 12}};
    EXPECT_EQ(read().modules[2].scale, 6.0f) << name;
  }
}

TEST_F(AdapterLayoutsTest, SavedModulesHaveTheirNameOrTheWrappers) {
  config_["modules_to_save"] = {"norm"};
  put(kPeft + "model.layers.0.input_layernorm.weight", {4}, 10);
  put(kPeft + "model.layers.1.input_layernorm.weight", {4}, 20);
  put(kPeft + "model.norm.weight", {4}, 30);
  const Adapter plain = read();
  ASSERT_EQ(plain.weights.size(), 3u);
  const auto raw = tensors_;
  tensors_.erase(kPeft + "model.norm.weight");
  for (const char* wrapper :
       {"modules_to_save.weight", "modules_to_save.default.weight", "modules_to_save.policy.weight"}) {
    const auto before = tensors_;
    put(kPeft + "model.norm." + wrapper, {4}, 30);
    put(kPeft + "model.norm.original_module.weight", {4}, 90);
    const Adapter adapter = read();
    EXPECT_THAT(adapter.left_out, ElementsAre(kPeft + "model.norm.original_module.weight"));
    ASSERT_EQ(adapter.weights.size(), 3u);
    EXPECT_EQ(loadAsFloat(adapter.weights[0].data, DType::kFloat32, 0), 30.0f);
    tensors_ = before;
  }
  tensors_ = raw;
  put(kPeft + "model.norm.modules_to_save.default.weight", {4}, 30);
  EXPECT_EQ(read().weights.size(), 3u) << "PEFT writes both";
  put(kPeft + "model.norm.modules_to_save.default.weight", {4}, 31);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("norm.modules_to_save.default.weight"), HasSubstr("is for the same weights as")));
  put(kPeft + "model.norm.modules_to_save.default.weight", {4}, 30);
  put(kPeft + "model.norm.modules_to_save.other.weight", {4}, 32);
  EXPECT_THAT(refusal(), HasSubstr("is for the same weights as"));
  for (int i = 0; i < 65; ++i) put(kPeft + fmt::format("model.norm.modules_to_save.{}.weight", i), {4}, 30);
  EXPECT_THAT(refusal(), HasSubstr("is one of more than 64 for the same weights"));
}

TEST_F(AdapterLayoutsTest, AnAdapterWithoutEffectIsNoticed) {
  EXPECT_EQ(read().without_effect, "");
  for (auto& [name, tensor] : tensors_) {
    if (name.ends_with("lora_B.weight")) std::fill(tensor.second.begin(), tensor.second.end(), -0.0f);
  }
  const auto untrained = tensors_;
  EXPECT_THAT(read().without_effect, HasSubstr("before training"));
  EXPECT_TRUE(isUntrained(openPeftWeights(dir_)));
  tensors_[kPeft + "model.layers.1.mlp.down_proj.lora_B.weight"].second.back() = 1e-30f;
  EXPECT_EQ(read().without_effect, "");
  EXPECT_FALSE(isUntrained(openPeftWeights(dir_)));
  tensors_ = peft_;
  config_["lora_alpha"] = 0;
  EXPECT_EQ(read().without_effect, "its scale is 0");
  tensors_ = untrained;
  config_["lora_alpha"] = 6;
  config_["bias"] = "all";
  put(kPeft + "model.layers.0.self_attn.q_proj.bias", {4});
  EXPECT_EQ(read().without_effect, "") << "it replaces a bias";
}

TEST_F(AdapterLayoutsTest, TheWeightsFileAndSubdirectoriesAreFound) {
  save();
  const auto found = [&] { return adapterWeightsFile(*Directory::open(dir_)); };
  EXPECT_EQ(found(), "adapter_model.safetensors");
  std::filesystem::remove(dir_ / "adapter_model.safetensors");
  EXPECT_EQ(found(), "");
  EXPECT_THAT(errorOf([&] { readPeftAdapter(dir_, "a", {model_.config, model_.table}); }),
              HasSubstr("has neither adapter_model.safetensors nor"));
  for (const char* name :
       {"adapter_9.pt", "adapter_10.pt", "adapter_model.pt", "adapters.safetensors", "adapter_model.bin"}) {
    writeFileAtomically(dir_ / name, "x");
    EXPECT_EQ(found(), name);
  }
  for (const char* name : {"adapter_.pt", "adapter_-1.pt", "adapter_99.bin", "adapter_99999999999999999999.pt"}) {
    writeFileAtomically(dir_ / name, "x");
    EXPECT_EQ(found(), "adapter_model.bin");
  }

  const auto trained = dir_ / "trained";
  const auto add = [&](const char* name) {
    std::filesystem::create_directories(trained / name);
    std::filesystem::copy_file(dir_ / "adapter_config.json", trained / name / "adapter_config.json");
  };
  const auto within = [&] { return adapterDirectoryWithin(Directory::open(trained))->path().filename().string(); };
  add("checkpoint-500");
  EXPECT_EQ(within(), "checkpoint-500");
  std::filesystem::create_directories(trained / "runs");
  add("checkpoint-1000");
  EXPECT_EQ(within(), "checkpoint-1000");
  add("policy");
  EXPECT_THAT(errorOf(within), AllOf(HasSubstr("checkpoint-1000, checkpoint-500, policy"), HasSubstr("name one")));
  std::filesystem::copy_file(dir_ / "adapter_config.json", trained / "adapter_config.json");
  EXPECT_EQ(within(), "trained");
}

}  // namespace
}  // namespace chorus
