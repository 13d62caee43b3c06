#include "cli/lora_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::HasSubstr;

TEST(LoraModulesTest, BothFormsAreTaken) {
  EXPECT_EQ(namedAdapterPath("a=/x/y=z"), "a=/x/y=z");
  EXPECT_EQ(namedAdapterPath(R"({"name": "a", "path": "/x y"})"), "a=/x y");
  EXPECT_EQ(namedAdapterPath(R"( {"path": "p", "base_model_name": "org/base", "name": "a"})"), "a=p");
}

TEST(LoraModulesTest, OtherValuesAreRefused) {
  const auto refusalOf = [](const std::string& value) { return errorOf([&] { namedAdapterPath(value); }); };
  for (const char* value : {"dir", "=dir", "name=", ""}) {
    EXPECT_THAT(refusalOf(value), HasSubstr("has no name; use NAME=PATH")) << value;
  }
  EXPECT_EQ(refusalOf(R"({"path": "p"})"), R"('name' is missing; use {"name": NAME, "path": PATH})");
  EXPECT_THAT(refusalOf(R"({"name": "a"})"), HasSubstr("'path' is missing"));
  EXPECT_THAT(refusalOf(R"({"name": "a", "path": 1})"), HasSubstr("'path' must be a text that is not empty"));
  EXPECT_THAT(refusalOf(R"({"name": "", "path": "p"})"), HasSubstr("'name' must be a text that is not empty"));
  EXPECT_THAT(refusalOf(R"({"name": "a", "path": "p", "rank": 8})"), HasSubstr("'rank' is not a key of an adapter"));
  EXPECT_THAT(refusalOf(R"({"name": "a", "name": "b", "path": "p"})"), HasSubstr("name"));
  EXPECT_THAT(refusalOf(R"({"name": "a", "path": "p")"), HasSubstr("JSON"));
  EXPECT_THAT(refusalOf(R"({"name": "a=b", "path": "p"})"), HasSubstr("has an equals sign"));
}

}  // namespace
}  // namespace chorus
