#include "lora/ordered_items.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/testing/error_of.h"
#include "base/testing/thread_time.h"
#include "lora/peft_config.h"

namespace chorus {
namespace {

std::string itemsOf(const std::string& text, size_t most = 4) {
  std::string out;
  for (const auto& [key, value] : orderedItems(text, "p", most, "x", {})) out += key + "=" + value.dump() + " ";
  return out;
}

TEST(OrderedItemsTest, KeepsTheOrderOfTheDocument) {
  EXPECT_EQ(itemsOf(R"({"a":{"p":{"x":1}},"p":{"b":1,"a":-2,"c":0.5},"q":{"d":4}})"), "b=1 a=-2 c=0.5 ");
  EXPECT_EQ(itemsOf(R"({"p":{"b":1,"a":2,"b":3}})"), "b=3 a=2 ") << "the first place, the last value";
  EXPECT_EQ(itemsOf(R"({"p":{"b":1},"p":{"c":2}})"), "c=2 ") << "the last of two fields";
  EXPECT_EQ(itemsOf(R"({"p":{"b":[1,{"z":2}],"c":{"p":3},"d":"4"}})"), R"(b=null c=null d="4" )");
  EXPECT_EQ(itemsOf(R"({"p":null})") + itemsOf("{}") + itemsOf("[1]"), "");
}

TEST(OrderedItemsTest, RefusesWhatIsNoSmallObject) {
  for (const char* text : {R"({"p":[1]})", R"({"p":1})", R"({"p":{"a":1,"b":1,"c":1,"d":1,"e":1}})"}) {
    EXPECT_EQ(errorOf([&] { itemsOf(text); }), "x: 'p' must be an object of at most 4 patterns") << text;
  }
}

// A document type that keeps key order took minutes for a megabyte of keys.
TEST(OrderedItemsTest, AConfigOfManyKeysTakesLittleTime) {
  std::string text = R"({"peft_type":"LORA","target_modules":["q_proj"],"rank_pattern":{)";
  for (int i = 0; text.size() < kMaxPeftConfigBytes - 100; ++i)
    text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  text += "}}";
  const auto begin = threadTime();
  EXPECT_EQ(errorOf([&] { PeftConfig::parse(text, "x"); }),
            "x: 'rank_pattern' must be an object of at most 4096 patterns");
  const std::chrono::duration<double> took = threadTime() - begin;
  EXPECT_LT(took.count(), 5);
}

}  // namespace
}  // namespace chorus
