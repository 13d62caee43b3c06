// Uploads and earlier contents of adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/error_of.h"
#include "server/testing/adapter_directory_fixture.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

class AdapterHistoryTest : public AdapterDirectoryTest {
 protected:
  using Loaded = AdapterDirectory::Loaded;

  std::unique_ptr<AdapterDirectory> openWithUploads(uint64_t bytes = 1000) {
    fs::create_directories(root / "store");
    return open(
        {.allowed_roots = {(root / "store").string()}, .upload_directory = root / "uploads", .upload_bytes = bytes});
  }
  std::string served(const std::string& name) {
    const auto model = catalog.find(name);
    return model == nullptr ? "" : model->fingerprint;
  }
  static std::vector<std::string> hashesOf(const AdapterDirectory::History& history) {
    std::vector<std::string> hashes;
    for (const auto& earlier : history.earlier) hashes.push_back(earlier.content_hash);
    return hashes;
  }
  size_t stored() const {
    size_t count = 0;
    for (const auto& own : fs::directory_iterator(root / "uploads")) {
      for ([[maybe_unused]] const auto& one : fs::directory_iterator(own)) ++count;
    }
    return count;
  }
};

TEST_F(AdapterHistoryTest, AnUploadIsReadAndServedAtOnce) {
  auto directory = openWithUploads();
  const auto added = directory->upload("new", "{}", "first");
  EXPECT_EQ(added.how, Loaded::kAdded);
  EXPECT_EQ(added.content_hash, "first") << "its values were read";
  EXPECT_EQ(served("new"), "fp_first");
  const auto id = catalog.find("new")->adapter_id.value();
  EXPECT_EQ(directory->upload("new", "{}", "second").how, Loaded::kReplaced);
  EXPECT_EQ(catalog.find("new")->adapter_id, id);
  EXPECT_EQ(directory->upload("new", "{}", "second").how, Loaded::kUnchanged);
  EXPECT_EQ(hashesOf(directory->historyOf("new")), std::vector<std::string>{"first"});
  EXPECT_TRUE(directory->historyOf("new").uploaded);
  EXPECT_TRUE(directory->scan().replaced.empty()) << "a scan leaves it alone";
  engine.broken = "4";
  EXPECT_THROW(directory->upload("new", "{}", "bad"), Error);
  EXPECT_EQ(served("new"), "fp_second");
  EXPECT_THROW(directory->upload("base", "{}", "x"), Error);
  EXPECT_THROW(directory->upload("a/b", "{}", "x"), Error);
  EXPECT_EQ(errorOf(engine.loads.at(id)), "") << "a load reads the upload";
}

TEST_F(AdapterHistoryTest, RollsBackToEarlierContents) {
  auto directory = openWithUploads();
  for (const char* weights : {"one", "two", "three"}) directory->upload("a", "{}", weights);
  EXPECT_EQ(hashesOf(directory->historyOf("a")), (std::vector<std::string>{"two", "one"}));
  EXPECT_EQ(directory->rollBack("a", "").content_hash, "two");
  EXPECT_EQ(served("a"), "fp_two");
  EXPECT_EQ(hashesOf(directory->historyOf("a")), (std::vector<std::string>{"three", "one"}));
  EXPECT_EQ(directory->rollBack("a", "one").content_hash, "one");
  EXPECT_EQ(hashesOf(directory->historyOf("a")), (std::vector<std::string>{"two", "three"}));
  EXPECT_EQ(errorOf([&] { directory->rollBack("a", "four"); }), "the adapter has no earlier content of this hash");
  EXPECT_EQ(errorOf([&] { directory->rollBack("b", ""); }), "no adapter of this name is served");
  for (int i = 0; i < 10; ++i) directory->upload("a", "{}", "more " + std::to_string(i));
  EXPECT_EQ(directory->historyOf("a").earlier.size(), AdapterDirectory::kMaxEarlier);
  EXPECT_TRUE(directory->unload("a"));
  EXPECT_TRUE(directory->historyOf("a").earlier.empty());
  engine.loads.clear();
  EXPECT_EQ(stored(), 0u);
}

TEST_F(AdapterHistoryTest, AnUploadForgetsOnlyWhatMustMakeRoomForIt) {
  auto directory = openWithUploads(1000);
  const auto content = [](char letter) { return std::string(198, letter); };  // 200 bytes with its configuration
  for (const char letter : {'a', 'b', 'c', 'd', 'e'}) directory->upload("a", "{}", content(letter));
  const auto kept = hashesOf(directory->historyOf("a"));
  EXPECT_EQ(kept, (std::vector<std::string>{content('d'), content('c'), content('b'), content('a')}));

  EXPECT_THAT(errorOf([&] { directory->upload("b", "{}", std::string(899, 'x')); }), ::testing::HasSubstr("would take"))
      << "there is never room for it beside the content that is served";
  EXPECT_EQ(hashesOf(directory->historyOf("a")), kept);
  EXPECT_THAT(errorOf([&] { directory->inspectUpload("{}", "x"); }), ::testing::HasSubstr("would take"));
  EXPECT_EQ(hashesOf(directory->historyOf("a")), kept) << "a check forgets nothing";

  directory->upload("b", "{}", std::string(248, 'x'));
  EXPECT_EQ(hashesOf(directory->historyOf("a")), (std::vector<std::string>{content('d'), content('c')}));
  EXPECT_EQ(directory->rollBack("a", "").content_hash, content('d'));
}

TEST_F(AdapterHistoryTest, AnEarlierUploadThatIsStillReadMakesNoRoom) {
  auto directory = openWithUploads(1000);
  directory->upload("a", "{}", std::string(498, 'a'));
  const auto earlier = engine.loads.at(1);
  directory->upload("a", "{}", std::string(298, 'b'));
  EXPECT_THROW(directory->upload("b", "{}", std::string(298, 'c')), Error);
  EXPECT_EQ(directory->historyOf("a").earlier.size(), 1u);
}

TEST_F(AdapterHistoryTest, DirectoriesAreEarlierContentsWhileTheyAreUnchanged) {
  adapter("placed", root / "served");
  adapter("one", root / "store");
  auto directory = openWithUploads();
  directory->scan();
  EXPECT_EQ(directory->serve("placed", "one").how, Loaded::kReplaced);
  EXPECT_EQ(directory->rollBack("placed", "").content_hash, "weights of placed");
  EXPECT_EQ(directory->rollBack("placed", "").content_hash, "weights of one");
  EXPECT_EQ(served("placed"), "fp_weights of o");
  write("placed", "changed");
  EXPECT_THAT(errorOf([&] { directory->rollBack("placed", ""); }), ::testing::HasSubstr("have changed or are missing"));
  EXPECT_EQ(served("placed"), "fp_weights of o") << "it is served as before";
  EXPECT_EQ(errorOf([&] { directory->rollBack("placed", ""); }), "the adapter has no earlier content");
}

TEST_F(AdapterHistoryTest, AnEarlierRequestStillLoadsItsUpload) {
  auto directory = openWithUploads();
  directory->upload("a", "{}", "one");
  const auto earlier = engine.loads.at(1);
  directory->upload("a", "{}", "two");
  directory->unload("a");
  EXPECT_EQ(errorOf(earlier), "") << "its files stay until the engine lets go of them";
}

TEST_F(AdapterHistoryTest, APinMovesToTheIdOfAnotherTokenizer) {
  auto directory = openWithUploads();
  directory->upload("a", "{}", "one");
  speaking = "2";
  directory->upload("a", "{}", "two");
  EXPECT_EQ(engine.moved_pins, (std::vector<std::pair<executor::IdType, executor::IdType>>{{1, 2}}));
}

TEST_F(AdapterHistoryTest, LeftOversOfEndedServersAreRemoved) {
  fs::create_directories(root / "uploads/chorus-uploads-gone/1");
  fs::create_directories(root / "uploads/other");
  auto first = openWithUploads();
  first->upload("a", "{}", "one");
  EXPECT_FALSE(fs::exists(root / "uploads/chorus-uploads-gone"));
  EXPECT_TRUE(fs::exists(root / "uploads/other"));
  auto second = openWithUploads();
  EXPECT_EQ(stored(), 1u) << "a running server's uploads stay";
}

}  // namespace
}  // namespace chorus::server
