#include "lora/peft_reader.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/testing/error_of.h"
#include "lora/adapter_builder.h"
#include "lora/module_pattern.h"
#include "lora/peft_config.h"
#include "lora/testing/peft_directory.h"

namespace chorus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kLayer0 = "base_model.model.model.layers.0.";
const std::string kLayer1 = "base_model.model.model.layers.1.";

class PeftTest : public PeftDirectoryTest {
 protected:
  PeftTest() {
    config_ = Json::parse(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", "use_dora": false,
      "target_modules": ["q_proj", "down_proj"], "lora_dropout": 0.1, "task_type": "CAUSAL_LM", "rank_pattern": {},
      "alpha_pattern": {}, "modules_to_save": null, "loftq_config": {}, "peft_version": "0.21.2"})");
    put(kLayer0 + "self_attn.q_proj.lora_A.weight", {2, 4});
    put(kLayer0 + "self_attn.q_proj.lora_B.weight", {4, 2});
    put(kLayer1 + "mlp.down_proj.lora_A.weight", {2, 6});
    put(kLayer1 + "mlp.down_proj.lora_B.weight", {4, 2});
  }

  // Adds a tensor whose first value differs from that of every other tensor.
  void put(const std::string& name, const std::vector<int64_t>& shape) {
    PeftDirectoryTest::put(name, shape, static_cast<float>(tensors_.size()));
  }
  // Makes q, k and v one tensor with rows of two queries, a key and a value, twice. Only this tensor is adapted.
  void fuseAttention() {
    auto& targets = model_.table[0].lora_targets;
    targets.push_back({kAttnQ, "self_attn.wqkv", 0, 4, {.total = 8, .begin = 0, .block = 2, .stride = 4}});
    targets.push_back({kAttnK, "self_attn.wqkv", 4, 2, {.total = 8, .begin = 2, .block = 1, .stride = 4}});
    targets.push_back({kAttnV, "self_attn.wqkv", 6, 2, {.total = 8, .begin = 3, .block = 1, .stride = 4}});
    tensors_.clear();
    config_["target_modules"] = {"wqkv"};
    put(kLayer1 + "self_attn.wqkv.lora_A.weight", {2, 4});
    put(kLayer1 + "self_attn.wqkv.lora_B.weight", {8, 2});  // row r holds 1 + 2 r, 2 + 2 r
  }
  std::string refusalOf(const std::string& field, const Json& value) {
    const Json old = config_;
    config_[field] = value;
    const std::string text = refusal();
    config_ = old;
    return text;
  }
};

TEST_F(PeftTest, ReadsModulesWithoutCopyingThem) {
  const Adapter adapter = read();
  EXPECT_EQ(adapter.name, "a");
  EXPECT_EQ(adapter.max_rank, 2);
  EXPECT_FALSE(adapter.uses_dora);
  ASSERT_EQ(adapter.modules.size(), 2u);
  const AdapterModule& q = adapter.modules[0];
  EXPECT_EQ(q.module_id, kAttnQ);
  EXPECT_EQ(q.module_name, "self_attn.q_proj");
  EXPECT_EQ(q.layer, 0);
  EXPECT_EQ(q.rank, 2);
  EXPECT_EQ(q.in, 4);
  EXPECT_EQ(q.out, 4);
  EXPECT_EQ(q.scale, 3.0f);
  EXPECT_EQ(loadAsFloat(q.b, q.dtype, 7), 8.0f);
  const AdapterModule& down = adapter.modules[1];
  EXPECT_EQ(down.layer, 1);
  EXPECT_EQ(down.in, 6);
  EXPECT_EQ(loadAsFloat(down.a, down.dtype, 0), 2.0f);
  EXPECT_EQ(adapter.storage.size(), 1u);
}

TEST_F(PeftTest, AcceptsNamesWithTheAdapterInThem) {
  tensors_.clear();
  put(kLayer0 + "self_attn.q_proj.lora_A.default.weight", {2, 4});
  put(kLayer0 + "self_attn.q_proj.lora_B.default.weight", {4, 2});
  EXPECT_EQ(read().modules.size(), 1u);
}

TEST_F(PeftTest, ScalesAndRanksFollowThePatterns) {
  config_["use_rslora"] = true;
  EXPECT_FLOAT_EQ(read().modules[0].scale, 6.0f / std::sqrt(2.0f));
  config_["use_rslora"] = false;
  config_["rank_pattern"] = {{"layers.1.mlp.down_proj", 3}, {"k_proj", 9}};
  config_["alpha_pattern"] = {{"q_proj", 1}};
  put(kLayer1 + "mlp.down_proj.lora_A.weight", {3, 6});
  put(kLayer1 + "mlp.down_proj.lora_B.weight", {4, 3});
  const Adapter adapter = read();
  EXPECT_EQ(adapter.modules[0].scale, 0.5f);
  EXPECT_EQ(adapter.modules[1].rank, 3);
  EXPECT_EQ(adapter.modules[1].scale, 2.0f);
  EXPECT_EQ(adapter.max_rank, 3);
}

TEST_F(PeftTest, ReadsMagnitudesInBothSpellings) {
  config_["use_dora"] = true;
  EXPECT_THAT(refusal(), HasSubstr("no lora_magnitude_vector"));
  put(kLayer0 + "self_attn.q_proj.lora_magnitude_vector", {4});
  put(kLayer1 + "mlp.down_proj.lora_magnitude_vector.weight", {4});
  const Adapter adapter = read();
  EXPECT_TRUE(adapter.uses_dora);
  EXPECT_THAT(adapter.modules[0].magnitude, ElementsAre(4, 5, 6, 7));
  EXPECT_FALSE(adapter.modules[0].magnitude_is_normalised);
  config_["use_dora"] = false;
  EXPECT_THAT(refusal(), HasSubstr("does not set use_dora"));
}

TEST_F(PeftTest, ContentHashFollowsWeightsAndConfig) {
  const std::string first = read().content_hash;
  EXPECT_EQ(read().content_hash, first);
  config_["lora_alpha"] = 7;
  EXPECT_NE(read().content_hash, first);
  config_["lora_alpha"] = 6;
  tensors_.begin()->second.second[0] += 1.0f;
  EXPECT_NE(read().content_hash, first);
}

TEST_F(PeftTest, NamesTheTensorThatIsWrong) {
  const auto original = tensors_;
  const std::string q = kLayer0 + "self_attn.q_proj.";
  put(q + "lora_A.weight", {2, 5});
  EXPECT_THAT(refusal(), HasSubstr("'" + q + "lora_A.weight' has shape [2, 5], expected [2, 4]"));
  tensors_ = original;
  put(q + "lora_B.weight", {4, 3});
  EXPECT_THAT(refusal(), HasSubstr("has shape [4, 3], expected [4, 2]"));
  tensors_ = original;
  tensors_.erase(q + "lora_B.weight");
  EXPECT_THAT(refusal(), HasSubstr("lora_B is missing"));
  tensors_ = original;
  put("base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight", {2, 4});
  EXPECT_THAT(refusal(), HasSubstr("layer 2, but the model has 2 layers"));
  tensors_ = original;
  put(kLayer0 + "self_attn.z_proj.lora_A.weight", {2, 4});
  EXPECT_THAT(refusal(), HasSubstr("those are self_attn.qkv_proj, self_attn.q_proj"));
  tensors_ = original;
  put("base_model.model.lm_head.weight", {2, 4});
  EXPECT_THAT(refusal(), HasSubstr("lm_head"));
  tensors_ = original;
  put(kLayer0 + "self_attn.k_proj.lora_A.weight", {2, 4});
  EXPECT_THAT(refusal(), HasSubstr("not among the modules"));
  tensors_ = original;
  put(q + "lora_A.default.weight", {2, 4});
  EXPECT_THAT(refusal(), HasSubstr("the same weights"));
  tensors_[q + "lora_A.default.weight"] = tensors_[q + "lora_A.weight"];
  EXPECT_THAT(refusal(), HasSubstr("the same weights")) << "equal values";
  tensors_ = original;
  put(kLayer0 + "self_attn.modules_to_save.q_proj.weight", {4, 4});
  EXPECT_THAT(refusal(), HasSubstr("modules_to_save.q_proj.weight")) << "only biases are saved so twice";
  tensors_ = original;
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    tensors_[q + "lora_A.weight"].second[3] = bad;
    EXPECT_THAT(refusal(), HasSubstr("lora_A.weight' holds values that are not finite"));
  }
  tensors_ = original;
  EXPECT_THAT(refusal(1), HasSubstr("rank 2, above the maximum of 1"));
  EXPECT_EQ(refusal(2), "");
  tensors_.clear();
  EXPECT_THAT(refusal(), HasSubstr("no LoRA tensors"));
}

TEST(AdapterBuilder, AAndBOfDifferentTypesAreConvertedToFloat32) {
  const std::vector<float> b = {0.1f, 1e-9f};
  std::vector<bf16> a(3);
  convertElements(std::vector<float>{1, 2, 3}.data(), DType::kFloat32, a.data(), DType::kBFloat16, 3);
  AdapterBuilder builder("mixed");
  builder.add({.rank = 1, .in = 3, .out = 2}, {DType::kBFloat16, {1, 3}, std::as_bytes(std::span(a))},
              {DType::kFloat32, {2, 1}, std::as_bytes(std::span(b))});
  const Adapter adapter = builder.finish("hash");
  const AdapterModule& module = adapter.modules.at(0);
  ASSERT_EQ(module.dtype, DType::kFloat32);
  EXPECT_EQ(loadAsFloat(module.a, module.dtype, 2), 3.0f);
  EXPECT_EQ(loadAsFloat(module.b, module.dtype, 0), b[0]);
  EXPECT_EQ(loadAsFloat(module.b, module.dtype, 1), b[1]);
}

TEST(AllFinite, RefusesDoublesThatNoFloatHolds) {
  const auto finite = [](double value) { return allFinite(std::as_bytes(std::span(&value, 1)), DType::kFloat64); };
  constexpr double kLargest = std::numeric_limits<float>::max();
  EXPECT_TRUE(finite(kLargest));
  EXPECT_TRUE(finite(-kLargest));
  EXPECT_FALSE(finite(kLargest * 2));
  EXPECT_FALSE(finite(-1e300));
  EXPECT_FALSE(finite(std::nan("")));
}

TEST_F(PeftTest, AModuleOnAFusedLinearAdaptsItsParts) {
  fuseAttention();
  config_["use_dora"] = true;
  put(kLayer1 + "self_attn.wqkv.lora_magnitude_vector", {8});  // row r holds 2 + r
  const Adapter adapter = read();
  ASSERT_EQ(adapter.modules.size(), 3u);
  const std::vector<std::vector<int>> rows = {{0, 1, 4, 5}, {2, 6}, {3, 7}};
  for (size_t part = 0; part < 3; ++part) {
    const AdapterModule& module = adapter.modules[part];
    EXPECT_EQ(module.module_id, kAttnQ + static_cast<int32_t>(part));
    ASSERT_EQ(module.out, std::ssize(rows[part]));
    ASSERT_EQ(module.magnitude.size(), rows[part].size());
    EXPECT_EQ(module.a, adapter.modules[0].a);
    for (size_t i = 0; i < rows[part].size(); ++i) {
      EXPECT_EQ(module.magnitude[i], static_cast<float>(2 + rows[part][i]));
      EXPECT_EQ(loadAsFloat(module.b, module.dtype, 2 * i + 1), static_cast<float>(2 + 2 * rows[part][i]));
    }
  }
  put(kLayer1 + "self_attn.wqkv.lora_B.weight", {4, 2});
  EXPECT_THAT(refusal(), HasSubstr("has shape [4, 2], expected [8, 2]"));
  put(kLayer1 + "self_attn.wqkv.lora_B.weight", {8, 2});
  config_["target_modules"] = {"wqkv", "q_proj"};
  put(kLayer1 + "self_attn.q_proj.lora_A.weight", {2, 4});
  put(kLayer1 + "self_attn.q_proj.lora_B.weight", {4, 2});
  put(kLayer1 + "self_attn.q_proj.lora_magnitude_vector", {4});
  EXPECT_THAT(refusal(), HasSubstr("adapts the same weights as another module of the adapter"));
}

TEST_F(PeftTest, TheBiasOfAModuleOnAFusedLinearFollowsItsRows) {
  fuseAttention();
  config_["lora_bias"] = true;
  put(kLayer1 + "self_attn.wqkv.lora_B.bias", {8});  // row r holds 2 + r
  const Adapter adapter = read();
  ASSERT_EQ(adapter.modules.size(), 3u);
  EXPECT_THAT(adapter.modules[0].bias, ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(adapter.modules[1].bias, ElementsAre(4, 8));
  EXPECT_THAT(adapter.modules[2].bias, ElementsAre(5, 9));
}

TEST_F(PeftTest, AModuleThatIsNamedWholeIsAdaptedInWhateverLayer) {
  config_["layers_to_transform"] = {1};
  EXPECT_THAT(refusal(), HasSubstr("q_proj.lora_A.weight' is not among the modules"));
  config_["target_modules"] = {"model.layers.0.self_attn.q_proj", "down_proj"};
  EXPECT_EQ(refusal(), "");
}

TEST_F(PeftTest, RefusesFieldsThatAskForMore) {
  EXPECT_THAT(refusalOf("peft_type", "IA3"), HasSubstr("'peft_type' IA3"));
  EXPECT_THAT(refusalOf("r", 0), HasSubstr("'r'"));
  EXPECT_THAT(refusalOf("bias", "some"), HasSubstr("'bias' must be none, all or lora_only"));
  EXPECT_THAT(refusalOf("modules_to_save", {{"lm_head", 1}}), HasSubstr("'modules_to_save'"));
  EXPECT_THAT(refusalOf("init_lora_weights", "pissa_niter_4"), HasSubstr("'init_lora_weights' pissa_niter_4"));
  EXPECT_THAT(refusalOf("rank_pattern", {{"q_proj", 0}}), HasSubstr("'q_proj'"));
  EXPECT_THAT(refusalOf("target_modules", 3), HasSubstr("'target_modules'"));
  EXPECT_THAT(refusalOf("lora_bias", true), HasSubstr("has no bias of lora_B, although"));
  EXPECT_THAT(refusalOf("use_qalora", true), HasSubstr("'use_qalora' is supported only at its default false"));
  EXPECT_EQ(refusalOf("fan_in_fan_out", true), "");
  const Json something = {{"a", 1}};
  for (const char* field :
       {"layer_replication", "megatron_config", "target_parameters", "trainable_token_indices",
        "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config", "use_bdlora"}) {
    EXPECT_THAT(refusalOf(field, something), HasSubstr(field));
    EXPECT_EQ(refusalOf(field, nullptr), "");
  }
  for (const char* field : {"init_lora_weights", "a_field_of_next_year", "auto_mapping", "eva_config"}) {
    EXPECT_EQ(refusalOf(field, something), "") << field;
  }
}

TEST_F(PeftTest, NamesMissingFiles) {
  const auto open = [&] { readPeftAdapter(dir_, "a", {model_.config, model_.table}); };
  writeFileAtomically(dir_ / "adapter_config.json", config_.dump());
  EXPECT_THAT(errorOf(open), HasSubstr("neither adapter_model.safetensors nor adapter_model.bin"));
  writeFileAtomically(dir_ / "adapter_model.bin", "x");
  EXPECT_THAT(errorOf(open), HasSubstr("adapter_model.bin: not a PyTorch file"));
  save();
  EXPECT_EQ(errorOf(open), "");
  std::filesystem::remove(dir_ / "adapter_config.json");
  EXPECT_THAT(errorOf(open), HasSubstr("adapter_config.json"));
}

TEST_F(PeftTest, TargetModulesMayBeOnePattern) {
  config_["target_modules"] = "all-linear";
  EXPECT_EQ(refusal(), "");
  config_["target_modules"] = R"(model\.layers\.\d+\.(self_attn\.q|mlp\.down)_proj)";
  EXPECT_EQ(refusal(), "");
  config_["target_modules"] = "q_proj";
  EXPECT_THAT(refusal(), HasSubstr("not among the modules"));
  config_["target_modules"] = "(";
  EXPECT_THAT(refusal(), HasSubstr("target_modules"));
}

TEST(ModulePatternTest, MatchesAsPeftDoes) {
  const auto matches = [](const char* pattern, const char* module) {
    return ModulePattern::ofNameEnd(pattern, "c", std::make_shared<PatternWork>("c", 100)).matches(module);
  };
  EXPECT_TRUE(matches("q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(matches("layers.1.self_attn.q_proj", "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(matches("layers.1.self_attn.q_proj", "model.layers.11.self_attn.q_proj"));
  EXPECT_FALSE(matches("proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(matches("^model.layers.0.q", "model.layers.0.q"));
  EXPECT_TRUE(matches(R"(layers\.(0|2)\..*)", "model.layers.2.self_attn.q_proj"));
  EXPECT_FALSE(matches(R"(layers\.(0|2)\..*)", "model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(matches("k_proj|q_proj", "model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(matches("q.proj", "a.q_proj"));
  EXPECT_FALSE(matches("q\\.proj", "a.q_proj"));
  EXPECT_TRUE(matches("q\\.proj", "q.proj"));
  EXPECT_FALSE(matches("q_proj", "aq_proj"));
  EXPECT_TRUE(matches("a.b", "x.a\u00e9b"));
  EXPECT_TRUE(matches("", "a."));
  EXPECT_FALSE(matches("", "a"));
}

// The names that Python's re.match(r"(.*\.)?(PATTERN)$", name) finds, as recorded from Python 3.11.
TEST(ModulePatternTest, ClassesAreReadAsInPython) {
  using Names = std::vector<std::string>;
  const Names names = {"[", "a", "b", "&", "|", "~", ":", "a]", "b]", ":]", "p", "1", "]", "[a", "(", "?", "P<", "(P<"};
  const std::vector<std::pair<std::string, Names>> cases = {
      {"[[a]", {"[", "a"}},
      {"[[:alpha:]]", {"a]", ":]"}},
      {"[a[b]]", {"a]", "b]"}},
      {"[a&&b]", {"a", "b", "&"}},
      {"[a||b]", {"a", "b", "|"}},
      {"[a~~b]", {"a", "b", "~"}},
      {"[]a]", {"a", "]"}},
      {"[^]a]", {"[", "b", "&", "|", "~", ":", "p", "1", "(", "?"}},
      {R"([\]&&a])", {"a", "&", "]"}},
      {R"([\w&&\d])", {"a", "b", "&", "p", "1"}},
      {"[[]", {"["}},
      {R"(\[a)", {"[a"}},
      {"(?#[)a", {"a"}},
      {"[(?P<a>)]", {"a", "(", "?"}},
      {"(?P<n>[[])", {"["}},
      {R"(\(?P<)", {"P<", "(P<"}},
  };
  for (const auto& [pattern, expected] : cases) {
    const auto compiled = ModulePattern::ofNameEnd(pattern, "c", std::make_shared<PatternWork>("c", 100));
    Names found;
    std::copy_if(names.begin(), names.end(), std::back_inserter(found),
                 [&](const std::string& name) { return compiled.matches(name); });
    EXPECT_EQ(found, expected) << pattern;
  }
  for (const char* pattern : {"a[", "[]", "a(?#"}) {
    EXPECT_THROW(ModulePattern::ofNameEnd(pattern, "c", std::make_shared<PatternWork>("c", 100)), Error) << pattern;
  }
}

// Thousands of patterns, each of which backtracks over every name: the configuration is refused by its work budget.
TEST(ModulePatternTest, AConfigurationsPatternsHaveALimitTogether) {
  OrderedJson config = {{"peft_type", "LORA"}, {"r", 4}};
  for (const char* field : {"rank_pattern", "alpha_pattern"}) {
    for (int i = 0; i < 4096; ++i) config[field][fmt::format(".*.*.*.*(?:\\d|[x-z]{{0}}\\d)(?#{})", i)] = 4;
  }
  const std::string message = errorOf([&] {
    const auto parsed = PeftConfig::parse(config.dump(), "hostile/adapter_config.json");
    for (int layer = 0; layer < 64; ++layer) parsed.scaleOf(fmt::format("model.layers.{}.self_attn.q_proj", layer));
  });
  // With sanitizers compiling takes too long already.
  EXPECT_THAT(message,
              AllOf(HasSubstr("hostile/adapter_config.json"),
                    testing::AnyOf(HasSubstr("bytes of work"), HasSubstr("to compile")), Not(HasSubstr("\n"))));
}

// Short texts that compile to large programs.
TEST(ModulePatternTest, AConfigurationsPatternsHaveALimitOfMemory) {
  const auto parsed = [](int patterns) {
    OrderedJson config = {{"peft_type", "LORA"}, {"r", 4}};
    for (int i = 0; i < patterns; ++i) {
      config[i % 2 == 0 ? "rank_pattern" : "alpha_pattern"][fmt::format("(?:abcd){{2000}}{}", i)] = 4;
    }
    return errorOf([&] { PeftConfig::parse(config.dump(), "hostile/adapter_config.json"); });
  };
  EXPECT_EQ(parsed(8), "");
  EXPECT_THAT(parsed(400), AllOf(HasSubstr("hostile/adapter_config.json: its patterns take more than"),
                                 HasSubstr("bytes of memory"), Not(HasSubstr("\n"))));
}

// Patterns that compile to nothing, each in some 50 ms.
TEST(ModulePatternTest, AConfigurationsPatternsHaveALimitOfTimeToCompile) {
  std::string empty;
  for (int i = 0; i < 3900; ++i) empty += "(?:)";
  OrderedJson config = {{"peft_type", "LORA"}, {"r", 4}};
  for (int i = 0; i < 66; ++i) config["rank_pattern"][fmt::format("(?:(?:{}a)++b){{1000}}{}", empty, i)] = 4;
  EXPECT_THAT(errorOf([&] { PeftConfig::parse(config.dump(), "hostile/adapter_config.json"); }),
              HasSubstr("hostile/adapter_config.json: its patterns take more than 1 s to compile"));
}

TEST(ModulePatternTest, PatternsThatBacktrackWithoutEndAreMatchedInLinearTime) {
  const auto work = std::make_shared<PatternWork>("c", 100);
  const std::string name = std::string(200, 'a') + "b";
  for (const char* pattern : {"(a+)+", "(a|a)*", "a*a*a*a*a*", "(?:a*)*", "(?=(a+)+c)a*b"}) {
    errorOf([&] { EXPECT_FALSE(ModulePattern::ofWholeName(pattern, "c", work).matches(name)) << pattern; });
  }
}

// A model whose sources have two spellings, and which has a part that is not served.
class PeftOtherPartsTest : public PeftTest {
 protected:
  PeftOtherPartsTest() {
    for (WeightRow& row : model_.table) {
      const std::vector<WeightSource> own = row.sources;
      for (WeightSource source : own) {
        source.name.insert(0, "language_model.");
        source.spelling = 1;
        row.sources.push_back(source);
      }
    }
  }
  Adapter readWithParts() {
    save();
    return readPeftAdapter(dir_, "a", {model_.config, model_.table, 0, kLeftOut});
  }
  const std::vector<std::string> kLeftOut = {"visual.*"};
};

TEST_F(PeftOtherPartsTest, ReplacementsAreReadOnce) {
  config_["modules_to_save"] = {"embed_tokens", "lm_head", "model.norm"};
  for (const std::string own : {"base_model.model.model.", "base_model.model.language_model.model."}) {
    const auto before = tensors_;
    put(own + "norm.weight", {4});
    put(own + "embed_tokens.weight", {8, 4});
    put("base_model.model.lm_head.weight", {8, 4});
    EXPECT_EQ(readWithParts().weights.size(), 3u) << own;
    tensors_ = before;
  }
}

TEST_F(PeftOtherPartsTest, TensorsOfOtherPartsAreLeftOut) {
  config_["target_modules"] = {"q_proj", "down_proj", "qkv"};
  put("base_model.model.visual.blocks.0.attn.qkv.lora_A.weight", {2, 5});
  put("base_model.model.visual.blocks.0.attn.qkv.lora_B.weight", {15, 2});
  // Parameters that are no module's weight or bias.
  put("base_model.model.visual.class_embedding", {5});
  put("base_model.model.visual.blocks.0.gamma_1", {5});
  const Adapter adapter = readWithParts();
  EXPECT_EQ(adapter.modules.size(), 2u);
  EXPECT_EQ(adapter.num_of_other_parts, 4);
  EXPECT_EQ(adapter.left_out.size(), 4u);
  EXPECT_THAT(refusal(), HasSubstr("visual.blocks.0.attn.qkv.lora_A.weight' adapts no module"));  // of another model
  std::erase_if(tensors_, [](const auto& entry) { return entry.first.find("visual") == std::string::npos; });
  EXPECT_THAT(errorOf([&] { readWithParts(); }),
              HasSubstr("visual.blocks.0.attn.qkv.lora_A.weight' is of a part of the model that is not served"));
}

}  // namespace
}  // namespace chorus
