// A key that is missing in a source's config has the value that transformers' class of the config gives it.
// tests/oracle/config_defaults.py makes the configs, in which the classes have written out every key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/testing/error_of.h"
#include "models/architecture.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using testing::HasSubstr;

Json configsOf(const std::string& architecture) {
  static const Json golden = readJsonFile(test::sourceDir() / "tests" / "goldens" / "config_defaults" / "configs.json");
  const Json& configs = golden.at("configs");
  return configs.contains(architecture) ? configs.at(architecture) : Json::array();
}

// Reads the config, and without one key after the other of the object at `place` and of those in it, except the keys
// that were given to the class. A reader may refuse a missing size.
void expectSameWithoutKeys(const Architecture& architecture, const Json& whole, const Json::json_pointer& place,
                           const std::set<std::string>& given) {
  const Json expected = architecture.configFromHuggingFace(whole, "c").toJson();
  for (const auto& [key, value] : whole.at(place).items()) {
    if (given.contains(key)) continue;
    Json partial = whole;
    partial.at(place).erase(key);
    SCOPED_TRACE(fmt::format("without {} {}", (place / key).to_string(), value.dump()));
    Json read;
    const std::string refusal = errorOf([&] { read = architecture.configFromHuggingFace(partial, "c").toJson(); });
    if (refusal.empty()) {
      EXPECT_EQ(Json::diff(expected, read), Json::array());
    } else {
      EXPECT_THAT(refusal, HasSubstr("is missing"));
    }
    // Keys of a RoPE scaling have no defaults of a class.
    const bool is_scaling = value.is_object() && value.value("rope_type", "default") != "default";
    if (value.is_object() && !is_scaling) expectSameWithoutKeys(architecture, whole, place / key, {});
  }
}

TEST(ConfigDefaultsTest, AMissingKeyHasTheValueOfTransformersClass) {
  for (const Architecture& architecture : builtInArchitectures()) {
    if (architecture.name == "GPTForCausalLM") continue;  // Megatron's, which transformers does not have
    SCOPED_TRACE(architecture.name);
    const Json configs = configsOf(architecture.name);
    EXPECT_FALSE(configs.empty()) << "add its class to tests/oracle/config_defaults.py";
    for (const Json& variant : configs) {
      const Json& config = variant.at("config");
      const Json::json_pointer place(config.contains("text_config") ? "/text_config" : "");
      expectSameWithoutKeys(architecture, config, place, variant.at("given").get<std::set<std::string>>());
    }
  }
}

}  // namespace
}  // namespace chorus
