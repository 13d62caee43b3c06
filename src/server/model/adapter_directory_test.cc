#include "server/model/adapter_directory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "server/testing/fakes.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

class AdapterDirectoryTest : public ::testing::Test {
 protected:
  AdapterDirectoryTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-adapters-XXXXXX").string();
    root = mkdtemp(pattern.data());
    fs::create_directories(root / "served");
  }
  ~AdapterDirectoryTest() override { fs::remove_all(root); }

  fs::path adapter(const std::string& name, const fs::path& parent) {
    fs::create_directories(parent / name);
    std::ofstream(parent / name / "adapter_config.json") << "{}";
    std::ofstream(parent / name / "adapter_model.safetensors") << "weights of " << name;
    return parent / name;
  }
  AdapterDirectory open() {
    return AdapterDirectory(
        root / "served", catalog,
        [this](executor::IdType id, const fs::path& directory) {
          if (directory.filename() == broken) fail(ErrorCode::kCorrupt, "{}: broken", directory.string());
          registered[id] = directory.filename().string();
        },
        [this](const fs::path& directory) { return directory.filename() == speaking ? own : catalog.base().text; });
  }

  fs::path root;
  std::string broken = "none", speaking = "none";
  std::shared_ptr<const TextCodec> own = std::make_shared<FakeCodec>();
  ModelCatalog catalog{{.name = "base", .fingerprint = "fp", .text = std::make_shared<FakeCodec>()}};
  std::map<executor::IdType, std::string> registered;
};

TEST_F(AdapterDirectoryTest, ServesByDirectoryName) {
  adapter("b-adapter", root / "served");
  adapter("a.adapter_1", root / "served");
  fs::create_directories(root / "served" / "empty");
  std::ofstream(root / "served" / "file.txt") << "x";
  adapter(".hidden", root / "served");
  auto directory = open();
  EXPECT_EQ(directory.scan(), (std::vector<std::string>{"a.adapter_1", "b-adapter"}));
  EXPECT_EQ(registered, (std::map<executor::IdType, std::string>{{1, "a.adapter_1"}, {2, "b-adapter"}}));
  EXPECT_EQ(catalog.find("b-adapter")->adapterId, 2u);
  EXPECT_NE(catalog.find("b-adapter")->fingerprint, catalog.find("a.adapter_1")->fingerprint);
  EXPECT_EQ(catalog.list().size(), 3u);
  EXPECT_TRUE(directory.scan().empty()) << "known ones are not registered again";
}

TEST_F(AdapterDirectoryTest, BrokenOneIsLeftOutAndTriedAgain) {
  adapter("bad", root / "served");
  adapter("good", root / "served");
  broken = "bad";
  auto directory = open();
  EXPECT_EQ(directory.scan(), std::vector<std::string>{"good"});
  EXPECT_EQ(catalog.find("bad"), nullptr);
  broken = "none";
  EXPECT_TRUE(directory.scan().empty()) << "unchanged files are not tried again";
  std::ofstream(root / "served" / "bad" / "adapter_model.safetensors") << "mended, and longer";
  EXPECT_EQ(directory.scan(), std::vector<std::string>{"bad"});
}

TEST_F(AdapterDirectoryTest, RequestsUseTheAdaptersOwnText) {
  adapter("plain", root / "served");
  adapter("speaking", root / "served");
  speaking = "speaking";
  auto directory = open();
  directory.scan();
  EXPECT_EQ(catalog.find("plain")->text, catalog.base().text);
  EXPECT_EQ(catalog.find("speaking")->text, own);
}

TEST_F(AdapterDirectoryTest, NewOnesAppearOnRefresh) {
  auto directory = open();
  EXPECT_TRUE(directory.scan().empty());
  adapter("late", root / "served");
  EXPECT_EQ(directory.scan(), std::vector<std::string>{"late"});
}

TEST_F(AdapterDirectoryTest, LinksOutAreRefused) {
  const fs::path outside = adapter("outside", root);
  fs::create_directory_symlink(outside, root / "served" / "link");
  const fs::path inside = adapter("inside", root / "served");
  fs::create_symlink(outside / "adapter_model.safetensors", inside / "extra.bin");
  adapter("real", root / "served");
  fs::create_directory_symlink(root / "served" / "real", root / "served" / "alias");
  auto directory = open();
  EXPECT_EQ(directory.scan(), (std::vector<std::string>{"alias", "real"}));
}

TEST_F(AdapterDirectoryTest, NameOfTheBaseIsTaken) {
  adapter("base", root / "served");
  auto directory = open();
  EXPECT_TRUE(directory.scan().empty());
  EXPECT_FALSE(catalog.find("base")->adapterId);
}

TEST_F(AdapterDirectoryTest, MissingDirectory) {
  EXPECT_THROW(AdapterDirectory(root / "nowhere", catalog, nullptr, nullptr), Error);
}

TEST(ServableName, Rules) {
  EXPECT_TRUE(isServableName("llama3-8b_math.v1"));
  EXPECT_TRUE(isServableName("grün"));
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string(".x"), std::string("a/b"), std::string("a\\b"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\xff"), std::string(256, 'a')}) {
    EXPECT_FALSE(isServableName(bad)) << bad;
  }
}

}  // namespace
}  // namespace chorus::server
