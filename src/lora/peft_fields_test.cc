#include "lora/peft_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "lora/peft_config.h"
#include "lora/peft_reader.h"
#include "lora/testing/test_model.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const fs::path kSource(test::sourceDir());
const fs::path kGoldens = kSource / "tests/goldens/peft";

Json manifest() { return readJsonFile(kGoldens / "manifest.json"); }

// PEFT's output for a LoraConfig with default values.
Json defaults() { return manifest()["fields"]; }

std::string refusalOf(const Json& config) {
  return errorOf([&] { PeftConfig::parse(config.dump(), "c"); });
}

TEST(PeftFieldsTest, ListTheFieldsThatPeftWrites) {
  const Json fields = defaults();
  std::set<std::string> written, listed;
  for (const auto& [name, value] : fields.items()) written.insert(name);
  for (const PeftField& field : peftFields()) {
    EXPECT_TRUE(listed.insert(std::string(field.name)).second) << field.name << " twice";
    if (field.name == "peft_version" || !fields.contains(std::string(field.name))) continue;
    EXPECT_EQ(fields[std::string(field.name)], Json::parse(field.default_json)) << field.name;
  }
  EXPECT_EQ(listed, written);
  EXPECT_GE(listed.size(), 40u);
}

TEST(PeftFieldsTest, DefaultsAreAccepted) {
  EXPECT_EQ(refusalOf(defaults()), "");
  for (const PeftField& field : peftFields()) {
    Json config = defaults();
    config.erase(std::string(field.name));
    EXPECT_EQ(refusalOf(config).empty(), field.name != "peft_type") << field.name;
  }
}

TEST(PeftFieldsTest, EveryOtherValueIsActedOnInertOrRefusedByName) {
  const std::map<std::string_view, Json> acted = {{"r", 3},
                                                  {"lora_alpha", 2.5},
                                                  {"use_rslora", true},
                                                  {"use_dora", true},
                                                  {"rank_pattern", {{"q_proj", 4}}},
                                                  {"alpha_pattern", {{"q_proj", 4.5}}},
                                                  {"target_modules", {"q_proj"}},
                                                  {"exclude_modules", "k_proj"},
                                                  {"layers_to_transform", {0}},
                                                  {"init_lora_weights", "gaussian"}};
  const Json values[] = {true, 3, "something", Json::array({"x"}), Json{{"x", 1}}};
  for (const PeftField& field : peftFields()) {
    SCOPED_TRACE(field.name);
    Json config = defaults();
    Json& value = config[std::string(field.name)];
    if (field.use == PeftFieldUse::kUsed) {
      if (const auto it = acted.find(field.name); it != acted.end()) {
        value = it->second;
        EXPECT_EQ(refusalOf(config), "");
      }
      continue;
    }
    for (const Json& other : values) {
      if (other == Json::parse(field.default_json)) continue;
      value = other;
      if (field.use == PeftFieldUse::kInert) {
        EXPECT_EQ(refusalOf(config), "") << other;
      } else {
        EXPECT_THAT(refusalOf(config),
                    AllOf(HasSubstr(fmt::format("'{}'", field.name)), HasSubstr("default"), Not(HasSubstr("\n"))));
      }
    }
  }
}

TEST(PeftFieldsTest, InitialisationsThatChangeTheBaseAreRefused) {
  Json config = defaults();
  for (const Json& harmless : {Json(true), Json(false), Json("gaussian"), Json("eva"), Json("orthogonal"), Json("mica"),
                               Json("Gaussian"), Json("MiCA")}) {
    config["init_lora_weights"] = harmless;
    EXPECT_EQ(refusalOf(config), "") << harmless;
  }
  for (const char* changing : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga", "of_next_year"}) {
    config["init_lora_weights"] = changing;
    EXPECT_THAT(refusalOf(config), AllOf(HasSubstr("'init_lora_weights'"), HasSubstr(changing)));
  }
}

TEST(PeftFieldsTest, CombinationsThatPeftRefuses) {
  Json config = defaults();
  config["target_modules"] = ".*q_proj";
  config["layers_to_transform"] = {1};
  EXPECT_THAT(refusalOf(config), HasSubstr("'layers_to_transform'"));
  config = defaults();
  config["layers_pattern"] = "layers";
  EXPECT_THAT(refusalOf(config), HasSubstr("'layers_pattern'"));
  config = defaults();
  for (const char* field : {"target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"}) {
    Json wrong = config;
    wrong[field] = {{"a", 1}};
    EXPECT_THAT(refusalOf(wrong), HasSubstr(fmt::format("'{}'", field)));
  }
}

TEST(PeftFieldsTest, DocumentationShowsTheTable) {
  EXPECT_THAT(readFile(kSource / "docs/adapter_config.md", 1 << 20), HasSubstr(peftFieldsMarkdown()));
}

TEST(PeftGoldenTest, ModulesRanksAndScalesArePefts) {
  const TestModel model;
  const Json cases = manifest()["modules"];
  ASSERT_GT(cases.size(), 12u);
  for (const auto& [name, modules] : cases.items()) {
    SCOPED_TRACE(name);
    const Adapter adapter = readPeftAdapter(kGoldens / name, name, {model.config, model.table});
    EXPECT_EQ(adapter.modules.size(), modules.size());
    EXPECT_EQ(adapter.uses_dora, name.starts_with("dora"));
    for (const AdapterModule& module : adapter.modules) {
      const std::string path = fmt::format("model.layers.{}.{}", module.layer, module.module_name);
      ASSERT_TRUE(modules.contains(path)) << path;
      EXPECT_EQ(module.rank, modules[path][0].get<int64_t>()) << path;
      EXPECT_FLOAT_EQ(module.scale, modules[path][1].get<float>()) << path;
    }
  }
}

// PEFT leaves such tensors out, so a file that holds them belongs to another adapter.
TEST(PeftGoldenTest, TensorsBeyondTheChoiceOfModulesAreRefused) {
  const TestModel model;
  const TensorFile weights = openPeftWeights(kGoldens / "rslora");
  Json config = readJsonFile(kGoldens / "rslora" / "adapter_config.json");
  const auto refusal = [&](const char* field, const Json& value) {
    Json changed = config;
    changed[field] = value;
    return errorOf([&] { readPeftAdapter(changed.dump(), "c", weights, "a", {model.config, model.table}); });
  };
  EXPECT_EQ(refusal("exclude_modules", nullptr), "");
  EXPECT_THAT(refusal("exclude_modules", {"v_proj"}), HasSubstr("v_proj"));
  EXPECT_THAT(refusal("exclude_modules", ".*k_proj"), HasSubstr("k_proj"));
  EXPECT_THAT(refusal("layers_to_transform", 0), HasSubstr("layers.1."));
  EXPECT_EQ(refusal("layers_to_transform", Json::array()), "");
  EXPECT_THAT(refusal("target_modules", "model.layers.0.*"), HasSubstr("layers.1."));
  EXPECT_EQ(refusal("target_modules", "all-linear"), "");
}

}  // namespace
}  // namespace chorus
