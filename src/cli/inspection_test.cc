#include "cli/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using testing::HasSubstr;

// A command of the terminal, a C1 control character, and a character that reorders text.
constexpr const char* kHostile = "a\x1b[2J\xc2\x9bm\xe2\x80\xae\nb";
constexpr const char* kShown = "a\\x1b[2J\\u{9b}m\\u{202e}\\nb";

TEST(InspectionTest, TheTableIsPrintable) {
  Inspection found;
  found.setKind(std::string("kind ") + kHostile);
  found.add("text", std::string("text ") + kHostile);
  found.addList("list", {"first", kHostile});
  found.addBytes("bytes", 3, kHostile);
  found.add(std::string("name ") + kHostile, int64_t{1});
  const std::string table = found.table(std::string("dir/") + kHostile);
  for (const char* before : {"dir/", "kind ", "text ", "first, ", "3 bytes  ", "name "}) {
    EXPECT_THAT(table, HasSubstr(std::string(before) + kShown));
  }
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 6);
  for (const char c : table) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

TEST(InspectionTest, JsonIsAscii) {
  Inspection found;
  found.add("text", kHostile);
  const std::string text = jsonText(found.json("dir"));
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  EXPECT_EQ(Json::parse(text)["facts"]["text"], kHostile);
}

}  // namespace
}  // namespace chorus
