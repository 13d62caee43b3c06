#include "formats/tar_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "base/testing/error_of.h"
#include "formats/testing/tar_test_file.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::span<const std::byte> bytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

// The names and bytes of all members.
std::vector<std::pair<std::string, std::string>> read(const std::string& archive) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const TarMember& member : readTar(PartialBytes(bytesOf(archive)), "f")) {
    result.emplace_back(member.name, archive.substr(member.offset, member.size));
  }
  return result;
}
std::string refusalOf(const TestTar& tar) {
  return errorOf([&] { read(tar.build()); });
}

TEST(TarArchiveTest, FindsMembersInPlace) {
  const TestTar tar = {{{"./", "", '5'},
                        {"./a.yaml", "first"},
                        {"./dir/", "", '5'},
                        {"./dir//./b", std::string(600, 'x')},
                        {"empty", ""}}};
  EXPECT_THAT(read(tar.build()),
              ElementsAre(Pair("a.yaml", "first"), Pair("dir/b", std::string(600, 'x')), Pair("empty", "")));
}

TEST(TarArchiveTest, ReadsLongNamesOfPaxAndGnuTar) {
  const std::string name = "dir/" + std::string(200, 'n');
  const TestTar pax = {{TestTar::pax("path", name), {"short", "values"}}};
  EXPECT_THAT(read(pax.build()), ElementsAre(Pair(name, "values")));
  const TestTar gnu = {{{"././@LongLink", name + '\0', 'L'}, {"short", "values"}}};
  EXPECT_THAT(read(gnu.build()), ElementsAre(Pair(name, "values")));
}

TEST(TarArchiveTest, AsksOnlyForHeaders) {
  const std::string values(1 << 20, 'v');
  const std::string archive = TestTar{{{"a", values}, {"b", values}}}.build();
  size_t asked = 0;
  const auto need = [&](size_t, size_t size) { asked += size; };
  EXPECT_EQ(readTar(PartialBytes(bytesOf(archive), need), "f").size(), 2u);
  EXPECT_LE(asked, 4 * kTarBlock);
}

TEST(TarArchiveTest, PassesOnTheErrorOfAReader) {
  const std::string archive = TestTar{{{"a", "values"}}}.build();
  const auto need = [](size_t, size_t) { fail(ErrorCode::kConflict, "the file changed"); };
  EXPECT_EQ(errorOf([&] { readTar(PartialBytes(bytesOf(archive), need), "f"); }), "the file changed");
}

TEST(TarArchiveTest, RefusesNamesOutsideTheArchive) {
  EXPECT_THAT(refusalOf({{{"../a", "x"}}}), HasSubstr("leaves the archive with '..'"));
  EXPECT_THAT(refusalOf({{{"a/../../b", "x"}}}), HasSubstr("'..': a/.."));
  EXPECT_THAT(refusalOf({{{"dir/..", "", '5'}}}), HasSubstr("'..'"));
  EXPECT_THAT(refusalOf({{{"/etc/passwd", "x"}}}), HasSubstr("the name '/etc/passwd' is absolute"));
  EXPECT_THAT(refusalOf({{{"./", "x"}}}), HasSubstr("f: "));
}

TEST(TarArchiveTest, RefusesLinksAndDevices) {
  EXPECT_THAT(refusalOf({{{"a", "", '2', "/etc/passwd"}}}), HasSubstr("'a' is a link"));
  EXPECT_THAT(refusalOf({{{"b", "x"}, {"a", "", '1', "b"}}}), HasSubstr("'a' is a link"));
  for (const char type : {'3', '4', '6'}) EXPECT_THAT(refusalOf({{{"a", "", type}}}), HasSubstr("'a' is a device"));
}

TEST(TarArchiveTest, RefusesDuplicateNames) {
  EXPECT_THAT(refusalOf({{{"a", "1"}, {"./a", "2"}}}), HasSubstr("two members have the name 'a'"));
}

TEST(TarArchiveTest, RefusesAMemberThatIsLargerThanTheArchive) {
  EXPECT_THAT(refusalOf({{{"a", "x", '0', "", 4096}}}), HasSubstr("member 'a' is larger than the archive"));
  EXPECT_THAT(refusalOf({{{"a", "x", '0', "", (uint64_t{1} << 33) - 1}}}), HasSubstr("larger than the archive"));
  const std::string whole = TestTar{{{"a", std::string(512, 'x')}}}.build();
  EXPECT_EQ(read(whole.substr(0, 1024)).size(), 1u);
  EXPECT_THAT(errorOf([&] { read(whole.substr(0, 1023)); }), HasSubstr("'a' is larger than the archive"));
}

TEST(TarArchiveTest, RefusesSparseFiles) {
  const TestTar tar = {{TestTar::pax("GNU.sparse.map", "0,1,1024,1"), {"a", "xy"}}};
  EXPECT_NE(refusalOf(tar), "");
}

TEST(TarArchiveTest, RefusesTooManyMembers) {
  TestTar tar;
  for (size_t i = 0; i < kMaxTarMembers; ++i) tar.entries.push_back({.name = std::to_string(i)});
  EXPECT_EQ(read(tar.build()).size(), kMaxTarMembers);
  tar.entries.push_back({.name = "more"});
  EXPECT_THAT(refusalOf(tar), HasSubstr("more than 65536 members"));
}

TEST(TarArchiveTest, RefusesOtherFiles) {
  EXPECT_EQ(errorOf([] { read(""); }), "f: the file is empty");
  for (const std::string& bytes : {std::string(2000, 'x'), std::string("short"), gzipped("x")}) {
    EXPECT_THAT(errorOf([&] { read(bytes); }), HasSubstr("f: damaged archive: "));
  }
  EXPECT_EQ(read(std::string(1024, '\0')).size(), 0u);
}

}  // namespace
}  // namespace chorus
