#include "server/access/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "base/testing/error_of.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

using ::testing::HasSubstr;

HttpRequest with(const std::string& header, const std::string& value) {
  HttpRequest request;
  request.headers = {{header, value}};
  return request;
}

std::string nameOf(const ApiKeys& keys, const HttpRequest& request) {
  try {
    return keys.authenticate(request)->name;
  } catch (const ApiError& e) {
    return std::to_string(e.status());
  }
}

std::string refusal(std::string_view text) {
  return errorOf([&] { ApiKeys::parse(text, "keys.yaml"); });
}

TEST(ApiKeys, AreFoundByEitherHeader) {
  Sha256 hash;
  hash.update("second-key");
  const ApiKeys keys = ApiKeys::parse(
      "keys:\n"
      "  - {name: first, key: first-key-1, admin: true}\n"
      "  - {name: second, key_sha256: \"" +
          hash.hex() + "\", base: no, adapters: [legal, \"court-*\"]}\n",
      "keys.yaml");
  EXPECT_EQ(nameOf(keys, with("authorization", "Bearer first-key-1")), "first");
  EXPECT_EQ(nameOf(keys, with("authorization", "bearer   first-key-1")), "first");
  EXPECT_EQ(nameOf(keys, with("x-api-key", "second-key")), "second");
  for (const char* wrong : {"Bearer first-key-2", "Bearer first-key-1 ", "Bearer ", "Bearer", "Basic first-key-1",
                            "first-key-1", "Bearer FIRST-KEY-1"}) {
    EXPECT_EQ(nameOf(keys, with("authorization", wrong)), "401") << wrong;
  }
  EXPECT_EQ(nameOf(keys, HttpRequest()), "401");
  const auto first = keys.authenticate(with("x-api-key", "first-key-1"));
  EXPECT_TRUE(first->admin && first->base && first->mayUseAdapter("anything"));
  const auto second = keys.authenticate(with("x-api-key", "second-key"));
  EXPECT_FALSE(second->admin || second->base);
}

TEST(ApiKeys, PatternsNameAdapters) {
  KeyRights rights{.all_adapters = false, .adapters = {"legal", "court-*", "*-v?", "a*b*c"}};
  for (const char* name : {"legal", "court-", "court-7", "x-v?", "abc", "aXbYc", "abcbc"})
    EXPECT_TRUE(rights.mayUseAdapter(name)) << name;
  for (const char* name : {"", "legal2", "Legal", "court", "x-v1", "ab", "abcd"})
    EXPECT_FALSE(rights.mayUseAdapter(name)) << name;
  rights.adapters = {std::string(2000, '*') + "b"};
  EXPECT_FALSE(rights.mayUseAdapter(std::string(2000, 'a'))) << "in linear time";
  rights.adapters = {};
  EXPECT_FALSE(rights.mayUseAdapter("legal"));
}

TEST(ApiKeys, FaultsOfAFileAreNamed) {
  EXPECT_THAT(refusal(""), HasSubstr("keys.yaml: expected 'keys:'"));
  EXPECT_THAT(refusal("keys: []"), HasSubstr("1 to"));
  EXPECT_THAT(refusal("keys:\n- x"), HasSubstr("keys[0]: expected a mapping"));
  EXPECT_THAT(refusal("keys: [{name: a, key: long-enough, adapter: [x]}]"), HasSubstr("keys[0]: a field other than"));
  EXPECT_THAT(refusal("keys: [{name: a, key: 123456789}]"), HasSubstr("'key' must be a text"));
  EXPECT_THAT(refusal("keys: [{name: a, key: short}]"), HasSubstr("8 to 4096 characters"));
  EXPECT_THAT(refusal("keys: [{name: a}]"), HasSubstr("either 'key' or 'key_sha256'"));
  EXPECT_THAT(refusal("keys: [{key: long-enough}]"), HasSubstr("'name'"));
  EXPECT_THAT(refusal("keys: [{name: a, key_sha256: abc}]"), HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(refusal("keys: [{name: a, key: long-enough, admin: 1}]"), HasSubstr("'admin' must be true or false"));
  EXPECT_THAT(refusal("keys: [{name: a, key: long-enough, adapters: all}]"), HasSubstr("list of names"));
  EXPECT_THAT(refusal("keys: [{name: a, key: long-enough}, {name: a, key: long-enough-2}]"),
              HasSubstr("the name 'a' is there twice"));
  EXPECT_THAT(refusal("keys: [{name: a, key: long-enough}, {name: b, key: long-enough}]"),
              HasSubstr("a key is there twice"));
  EXPECT_THAT(errorOf([] { ApiKeys::single("short"); }), HasSubstr("--api_key"));

  const std::string key = "keys: [{name: a, key: long-enough";
  for (const char* value : {"1000000001", "-1", "1.5", "many", "true", "18446744073709551615", "[1]"}) {
    EXPECT_THAT(refusal(key + ", limits: {tokens_per_minute: " + value + "}}]"),
                HasSubstr("keys[0].limits: 'tokens_per_minute' must be a whole number from 0 to 1000000000"))
        << value;
  }
  EXPECT_THAT(refusal(key + ", limits: 5}]"), HasSubstr("keys[0].limits: expected a mapping"));
  EXPECT_THAT(refusal(key + ", limits: {tokens: 5}}]"), HasSubstr("keys[0].limits: a field other than requests_per"));
  EXPECT_THAT(refusal(key + "}]\nadapters: {}"), HasSubstr("'adapters' must be a list"));
  EXPECT_THAT(refusal(key + "}]\nadapters: [{limits: {tokens_per_minute: 1}}]"), HasSubstr("adapters[0]: 'name'"));
  for (const char* value : {"0", "1001", "-1", "1.5", "much"}) {
    EXPECT_THAT(refusal(key + ", weight: " + value + "}]"),
                HasSubstr("keys[0]: 'weight' must be a whole number from 1 to 1000"))
        << value;
  }
  EXPECT_THAT(refusal(key + "}]\nadapters: [{name: x, limits: {tokens_per_minute: 1}, key: y}]"),
              HasSubstr("adapters[0]: a field other than name, limits, weight"));
  const std::string x = "{name: x, limits: {tokens_per_minute: 1}}";
  EXPECT_THAT(refusal(key + "}]\nadapters: [" + x + ", " + x + "]"), HasSubstr("the adapter 'x' is there twice"));
  EXPECT_THAT(refusal("adapters: [" + x + "]"), HasSubstr("expected 'keys:'"));
  EXPECT_THAT(refusal(key + "}]\nadapter: [" + x + "]"), HasSubstr("nothing else but 'adapters:'"));
  std::string patterns;
  for (int i = 0; i < 1025; ++i) patterns += "- {name: '" + std::to_string(i) + "*', limits: {tokens_per_minute: 1}}\n";
  EXPECT_THAT(refusal(key + "}]\nadapters:\n" + patterns), HasSubstr("adapters[1024]: more than 1024 names with '*'"));
}

}  // namespace
}  // namespace chorus::server
