#include "formats/zip_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/error_of.h"
#include "formats/testing/torch_test_file.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// The names and bytes of all entries.
std::vector<std::pair<std::string, std::string>> read(const std::string& archive) {
  const ZipArchive zip(PartialBytes(std::as_bytes(std::span(archive))), "f");
  std::vector<std::pair<std::string, std::string>> result;
  const auto bytes = zip.readAll();
  for (size_t i = 0; i < bytes.size(); ++i) {
    result.emplace_back(zip.entries()[i].name,
                        std::string(reinterpret_cast<const char*>(bytes[i].data()), bytes[i].size()));
  }
  return result;
}
std::string refusalOf(const std::string& archive) {
  return errorOf([&] { read(archive); });
}
TestZip two() { return {.entries = {{"a/one", "first"}, {"a/two", std::string("\0x", 2)}}}; }

TEST(ZipDirectoryTest, FindsEntriesOfPlainAndZip64Archives) {
  for (const bool zip64 : {false, true}) {
    TestZip zip = two();
    zip.zip64 = zip64;
    zip.comment = "words at the end";
    const std::string archive = zip.build();
    const auto entries = read(archive);
    EXPECT_THAT(entries, ElementsAre(Pair("a/one", "first"), Pair("a/two", std::string("\0x", 2))));
  }
  const std::string empty = TestZip{}.build();
  EXPECT_TRUE(read(empty).empty());
}

TEST(ZipDirectoryTest, RefusesWhatItCannotMap) {
  TestZip zip = two();
  zip.entries[1].method = 8;
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("'a/two' is compressed"));
  zip = two();
  zip.entries[0].flags = 1;
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("encrypted"));
  zip = two();
  zip.entries[1].name = "A/ONE";
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("one name"));
  zip.entries[1].name = std::string("a/\0b", 4);
  EXPECT_THAT(refusalOf(zip.build()), HasSubstr("no proper name"));
}

TEST(ZipDirectoryTest, EveryTruncationIsRefused) {
  for (const bool zip64 : {false, true}) {
    TestZip zip = two();
    zip.zip64 = zip64;
    const std::string archive = zip.build();
    for (size_t size = 0; size < archive.size(); ++size) EXPECT_NE(refusalOf(archive.substr(0, size)), "") << size;
    EXPECT_THAT(refusalOf(archive + "x"), HasSubstr("bytes follow"));
    EXPECT_NE(refusalOf("x" + archive), "") << "offsets no longer point at headers";
  }
}

TEST(ZipDirectoryTest, HeadersMustAgreeWithTheDirectory) {
  const std::string archive = two().build();
  const size_t directory = archive.find("PK\x01\x02");
  const size_t end = archive.find("PK\x05\x06");
  const auto with = [&](size_t at, char value) {
    std::string changed = archive;
    changed[at] = value;
    return refusalOf(changed);
  };
  EXPECT_THAT(with(directory + 38, 0x10), HasSubstr("folder"));
  EXPECT_THAT(with(directory + 8, 0x20), HasSubstr("patch"));
  EXPECT_THAT(with(directory + 24, 4), HasSubstr("two sizes differ"));
  EXPECT_THAT(with(directory + 42, 1), HasSubstr("local header"));
  EXPECT_THAT(with(30, 'b'), HasSubstr("differs from the directory"));
  EXPECT_THAT(with(end + 10, 3), HasSubstr("counts"));
  EXPECT_THAT(with(end + 16, 1), HasSubstr("where its end says"));
  EXPECT_THAT(with(end + 4, 1), HasSubstr("multi-part zip"));
  std::string twice = archive;  // both entries refer to the first local header
  twice.replace(directory + 46 + 5 + 42, 4, std::string(4, '\0'));
  EXPECT_NE(refusalOf(twice), "");
  std::string longer = archive;  // the first entry overlaps the second
  longer[directory + 20] = longer[directory + 24] = 30;
  EXPECT_THAT(refusalOf(longer), HasSubstr("overlap"));
  longer[directory + 20] = longer[directory + 24] = 127;
  EXPECT_THAT(refusalOf(longer), HasSubstr("reaches into the directory"));
}

}  // namespace
}  // namespace chorus
