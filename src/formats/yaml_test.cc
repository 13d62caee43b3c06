#include "formats/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusalOf(const std::string& text) {
  const std::string line = errorOf([&] { parseYaml(text, "f"); });
  EXPECT_EQ(line.find('\n'), std::string::npos);
  return line;
}

TEST(YamlTest, ReadsAConfigAsOmegaConfWritesIt) {
  const Json json = parseYaml(
      "mcore_gpt: true\n"
      "num_layers: 24\n"
      "layernorm_epsilon: 1.0e-05\n"
      "init_method_std: 1e-2\n"
      "kv_channels: null\n"
      "activation: fast-swiglu\n"
      "tokenizer:\n"
      "  library: sentencepiece\n"
      "  model: nemo:0123_tokenizer.model\n"
      "  use_fast: no\n"
      "data_prefix:\n"
      "- 0.5\n"
      "- /data/my '1' set\n"
      "- [1, -2, '3', \"4\\n\"]\n"
      "empty: {}\n",
      "f");
  EXPECT_EQ(json, Json::parse(R"({"mcore_gpt": true, "num_layers": 24, "layernorm_epsilon": 1e-5,
      "init_method_std": 1e-2, "kv_channels": null, "activation": "fast-swiglu",
      "tokenizer": {"library": "sentencepiece", "model": "nemo:0123_tokenizer.model", "use_fast": false},
      "data_prefix": [0.5, "/data/my '1' set", [1, -2, "3", "4\n"]], "empty": {}})"));
}

TEST(YamlTest, TheLinesOfTheOutermostKeysAreKnown) {
  YamlKeyLines lines{{"old", 1}};
  parseYaml("# a comment\na: 1\n\n'b':\n  c: 2\n  d: [3,\n   4]\ne: {f: 5}\n", "f", lines);
  EXPECT_EQ(lines, (YamlKeyLines{{"a", 2}, {"b", 4}, {"e", 8}}));
  parseYaml("{a: 1,\n b: 2}", "f", lines);
  EXPECT_EQ(lines, (YamlKeyLines{{"a", 1}, {"b", 2}}));
  parseYaml("- a: 1\n", "f", lines);
  EXPECT_TRUE(lines.empty());
}

TEST(YamlTest, ScalarsHaveYamlsTypes) {
  const auto one = [](const std::string& text) { return parseYaml("a: " + text + "\n", "f")["a"]; };
  EXPECT_EQ(one("~"), nullptr);
  EXPECT_EQ(one(""), nullptr);
  EXPECT_EQ(one("On"), true);
  EXPECT_EQ(one("'yes'"), "yes");
  EXPECT_EQ(one("+12"), 12);
  EXPECT_EQ(one("-12"), -12);
  EXPECT_EQ(one("12a"), "12a");
  EXPECT_EQ(one("1-2"), "1-2");
  EXPECT_EQ(one("+-1"), "+-1");
  EXPECT_EQ(one("nan"), "nan");
  EXPECT_EQ(one("1e999"), "1e999");
  EXPECT_EQ(one("99999999999999999999"), 1e20);
  EXPECT_EQ(one("!!str 5"), "5");
  EXPECT_EQ(one("!!int 5"), 5);
  EXPECT_EQ(one("bf16-mixed"), "bf16-mixed");
}

TEST(YamlTest, RefusesAliases) {
  EXPECT_THAT(refusalOf("a: &x [lol, lol]\nb: [*x, *x]\n"), StartsWith("f: line 2, column 5: an alias"));
}

TEST(YamlTest, RefusesOtherTypes) {
  EXPECT_THAT(refusalOf("a: !!python/object:os.system x\n"), HasSubstr("tag"));
  EXPECT_THAT(refusalOf("a: !!python/tuple [1]\n"), HasSubstr("tag"));
  EXPECT_THAT(refusalOf("{[1]: 2}\n"), HasSubstr("a key must be a scalar"));
  EXPECT_THAT(refusalOf("? {a: 1}\n: 2\n"), HasSubstr("a key must be a scalar"));
}

TEST(YamlTest, RefusesMalformedText) {
  EXPECT_THAT(refusalOf("a: [1\n"), StartsWith("f: line "));
  EXPECT_EQ(refusalOf("a: \xad\n"), "f: is not UTF-8 text");
  EXPECT_EQ(parseYaml("a: \"\\xad\"\n", "f")["a"], "\u00ad");
  EXPECT_THAT(refusalOf("a: b: c\n"), StartsWith("f: line "));
  EXPECT_THAT(refusalOf("a: 1\na: 2\n"), StartsWith("f: line 2, column 1: the key 'a' occurs twice"));
  EXPECT_THAT(refusalOf("a: 1\n---\nb: 2\n"), HasSubstr("a second document"));
}

TEST(YamlTest, LimitsDepthAndSize) {
  EXPECT_NO_THROW(parseYaml(std::string(kMaxYamlDepth, '[') + std::string(kMaxYamlDepth, ']'), "f"));
  EXPECT_THAT(refusalOf(std::string(kMaxYamlDepth + 1, '[') + std::string(kMaxYamlDepth + 1, ']')),
              HasSubstr("nesting is deeper than 32"));
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "- ";
  EXPECT_THAT(refusalOf(blocks), HasSubstr("nesting is deeper than 32"));
  EXPECT_THAT(refusalOf(std::string(kMaxYamlBytes + 1, ' ')), HasSubstr("more than 1048576"));
}

TEST(YamlTest, NoDocumentIsNull) { EXPECT_TRUE(parseYaml("# nothing\n", "f").is_null()); }

}  // namespace
}  // namespace chorus
