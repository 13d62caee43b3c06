#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exact_json.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

TEST(JsonTest, NamesLineAndColumnOfATrailingComma) {
  EXPECT_EQ(errorOf([] { parseJson("{\n \"a\": 1,\n}", "config.json"); }),
            "config.json: malformed JSON at line 3 column 1");
}

TEST(JsonTest, RefusesDepthAndSize) {
  EXPECT_THAT(errorOf([] { parseJson(std::string(100, '['), "x"); }), testing::HasSubstr("deeper than 64"));
  EXPECT_EQ(errorOf([] { parseJson("\"[[[[\"", "x", {.max_bytes = 100, .max_depth = 1}); }), "");
  EXPECT_THAT(errorOf([] { parseJson("[1,2,3]", "x", {.max_bytes = 3}); }), testing::HasSubstr("limit is 3"));
}

TEST(JsonTest, RefusesTextAfterANulByte) {
  EXPECT_EQ(errorOf([] { parseJson(std::string_view("{}\0\n[", 5), "x"); }), "x: malformed JSON at line 1 column 3");
}

TEST(JsonTest, RefusesNumbersBeyondADouble) {
  EXPECT_THAT(errorOf([] { parseJson("{\"a\": 1e999}", "x"); }), testing::HasSubstr("outside the range of a double"));
}

TEST(JsonTest, UniqueKeysAreCheckedPerObjectAndAfterUnescaping) {
  const JsonLimits unique{.unique_keys = true};
  EXPECT_EQ(errorOf([&] { parseJson(R"({"a": {"a": 1}, "b": {"a": 2}})", "x", unique); }), "");
  EXPECT_EQ(errorOf([&] { parseJson(R"({"a": 1, "\u0061": 2})", "x", unique); }), "x: key 'a' appears twice");
  EXPECT_EQ(errorOf([&] { parseOrderedJson(R"({"o": {"b": 1, "b": 1}})", "x", unique); }), "x: key 'b' appears twice");
  EXPECT_EQ(parseJson(R"({"a": 1, "a": 2})", "x")["a"], 2);
}

TEST(JsonTest, KeysOfTheOneMapMayRepeat) {
  const JsonLimits limits{.unique_keys = true, .map = "/m/v"};
  EXPECT_EQ(parseJson(R"({"m": {"x": 1, "v": {"a": 1, "a": 2}}})", "x", limits)["m"]["v"]["a"], 2);
  EXPECT_EQ(errorOf([&] { parseJson(R"({"m": {"v": {"b": {"a": 1, "a": 2}}}})", "x", limits); }),
            "x: key 'a' appears twice");
  EXPECT_EQ(errorOf([&] { parseJson(R"({"m": {"v": {}, "v": {}}})", "x", limits); }), "x: key 'v' appears twice");
  EXPECT_EQ(errorOf([&] { parseJson(R"({"v": {"a": 1, "a": 2}})", "x", limits); }), "x: key 'a' appears twice");
  for (const char* other : {R"({"m": {"v2": {"a": 1, "a": 2}}})", R"({"m": {"": {"a": 1, "a": 2}}})",
                            R"({"mm": {"v": {"a": 1, "a": 2}}})", R"({"m": {"x": {}, "w": {"a": 1, "a": 2}}})"}) {
    EXPECT_EQ(errorOf([&] { parseJson(other, "x", limits); }), "x: key 'a' appears twice") << other;
  }
}

// A long key around many small objects would take minutes if it were copied for each of them.
TEST(JsonTest, UniqueKeysOfManyObjectsBelowALongKeyTakeLittleTime) {
  std::string text = "{\"" + std::string(size_t{4} << 20, 'k') + "\":[";
  for (int i = 0; i < 500'000; ++i) text += "{},";
  text.back() = ']';
  text += '}';
  EXPECT_EQ(parseJson(text, "x", {.unique_keys = true, .map = "/m/v"}).begin()->size(), 500'000);
}

TEST(JsonTest, ExactJsonKeepsIntegersBeyond64Bits) {
  const OrderedJson json = parseExactJson(
      R"([18446744073709551616, -9223372036854775809, 18446744073709551615, 1e30, 18446744073709551616.0, "1"])", "x");
  EXPECT_EQ(wideIntegerDigits(json[0]), "18446744073709551616");
  EXPECT_EQ(wideIntegerDigits(json[1]), "-9223372036854775809");
  EXPECT_EQ(json[2].get<uint64_t>(), UINT64_MAX);
  for (size_t i = 2; i < json.size(); ++i) EXPECT_FALSE(wideIntegerDigits(json[i])) << i;
  EXPECT_TRUE(json[3].is_number_float() && json[4].is_number_float());
  EXPECT_TRUE(parseOrderedJson("18446744073709551616", "x").is_number_float());
  EXPECT_THAT(errorOf([] { parseExactJson(std::string(400, '9'), "x"); }),
              testing::HasSubstr("outside the range of a double"));
}

// Untrusted documents may contain many small objects.
TEST(JsonTest, UniqueKeysOfManyObjectsTakeLittleTime) {
  std::string text = "[";
  for (int i = 0; i < 300000; ++i) text += "{\"a\": 1},";
  text.back() = ']';
  EXPECT_EQ(parseJson(text, "x", {.unique_keys = true}).size(), 300000);
}

// nlohmann's own parser for ordered objects takes quadratic time: it compares every key with all keys before it.
TEST(JsonTest, OrderedObjectsOfManyKeysTakeLittleTime) {
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += fmt::format("\"{}\": [{}, {{\"a\": null}}],", i, i);
  text.back() = '}';
  const OrderedJson json = parseOrderedJson(text, "x");
  EXPECT_EQ(json.size(), 300000);
  EXPECT_EQ(json.items().begin().key(), "0");
}

TEST(JsonTest, OrderedObjectsAreThoseOfTheLibrary) {
  std::string many = "{";
  for (int i = 0; i < 60; ++i) many += fmt::format("\"{}\": {},", i % 40, i);
  many.back() = '}';
  for (const std::string& text :
       {many,
        std::string(R"({"b": {"x": [1, -2, 0.5, true, null, "s"]}, "a": [], "b": {"y": {}}, "c": [[{}], {"d": []}]})"),
        std::string("3"), std::string("[]"), std::string(R"("\u00e9")")}) {
    EXPECT_EQ(parseOrderedJson(text, "x").dump(), OrderedJson::parse(text).dump());
  }
  EXPECT_EQ(errorOf([] { parseOrderedJson("{\n \"a\": 1,\n}", "x"); }), "x: malformed JSON at line 3 column 1");
  EXPECT_EQ(errorOf([] { parseOrderedJson("", "x"); }), errorOf([] { parseJson("", "x"); }));
  EXPECT_THAT(errorOf([] { parseOrderedJson("{\"a\": 1e999}", "x"); }),
              testing::HasSubstr("outside the range of a double"));
}

TEST(JsonTest, TypedMembersAreRangeChecked) {
  const Json object = parseJson(R"({"big": 4294967296, "neg": -1, "f": 1.5, "s": "x", "b": true, "n": null})", "x");
  EXPECT_EQ(jsonGet<int64_t>(object, "big", "x"), 4294967296);
  EXPECT_THAT(errorOf([&] { jsonGet<int32_t>(object, "big", "x"); }), testing::HasSubstr("'big'"));
  EXPECT_THAT(errorOf([&] { jsonGet<uint64_t>(object, "neg", "x"); }), testing::HasSubstr("'neg'"));
  EXPECT_THAT(errorOf([&] { jsonGet<int32_t>(object, "f", "x"); }), testing::HasSubstr("integer"));
  EXPECT_THAT(errorOf([&] { jsonGet<bool>(object, "missing", "x"); }), testing::HasSubstr("missing"));
  EXPECT_EQ(jsonGetOr<int32_t>(object, "n", 7, "x"), 7);
  EXPECT_EQ(jsonGet<std::string>(object, "s", "x"), "x");
}

}  // namespace
}  // namespace chorus
