// Adapters that are removed, replaced, unloaded, or back again.
#include <gtest/gtest.h>

#include <fstream>

#include "base/testing/error_of.h"
#include "server/testing/adapter_directory_fixture.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

TEST_F(AdapterDirectoryTest, ARemovedOneEnds) {
  adapter("a", root / "served");
  adapter("b", root / "served");
  auto directory = open();
  directory->scan();
  engine.loadAll();
  fs::rename(root / "served/a", root / "kept");
  const auto request = catalog.find("a");
  EXPECT_EQ(directory->scan().removed, std::vector<std::string>{"a"});
  EXPECT_EQ(catalog.find("a"), nullptr);
  EXPECT_EQ(catalog.list().size(), 2u);
  EXPECT_NE(request, nullptr) << "a request that began with it keeps it";
  EXPECT_FALSE(engine.registered.contains(1)) << "its weights are dropped";
  EXPECT_TRUE(directory->scan().removed.empty());
  fs::rename(root / "kept", root / "served/a");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"a"});
  ASSERT_NE(catalog.find("a"), nullptr);
  EXPECT_EQ(catalog.find("a")->adapter_id, 3u);
}

TEST_F(AdapterDirectoryTest, ARemovedOneGivesItsTextBack) {
  adapter("a", root / "served");
  speaking = "a";
  auto directory = open();
  directory->scan();
  const long held = own.use_count();
  fs::remove_all(root / "served/a");
  directory->scan();
  EXPECT_LT(own.use_count(), held);
  EXPECT_TRUE(engine.registered.empty());
}

class AdapterRefreshTest : public AdapterDirectoryTest {
 protected:
  // Returns a directory that serves `a` and `b`, both loaded. After that the content of `a` changes, the files of `b`
  // are removed, and the files of `late` appear; no scan has seen this yet.
  std::unique_ptr<AdapterDirectory> changedDirectory(AdapterRefresh refresh) {
    adapter("a", root / "served");
    adapter("b", root / "served");
    auto directory = open({.refresh = refresh});
    directory->scan();
    engine.loadAll();
    before = catalog.find("a");
    write("a", "better weights");
    fs::remove_all(root / "served/b");
    adapter("late", root / "served");
    return directory;
  }

  std::shared_ptr<const ServedModel> before;  // `a` before the change
};

TEST_F(AdapterRefreshTest, AddOnlyAdds) {
  const auto directory = changedDirectory(AdapterRefresh::kAdd);
  const auto found = directory->scan();
  EXPECT_EQ(found.added, std::vector<std::string>{"late"});
  EXPECT_TRUE(found.replaced.empty());
  EXPECT_TRUE(found.removed.empty());
  EXPECT_EQ(catalog.find("a"), before);
  EXPECT_NE(catalog.find("b"), nullptr);
  // After an eviction the old content is not there any more.
  const auto loads = engine.loads;
  loads.at(1)();
  EXPECT_EQ(catalog.find("a")->fingerprint, "fp_better weigh");
  EXPECT_NE(errorOf(loads.at(2)), "");
  EXPECT_EQ(catalog.find("b"), nullptr);
}

TEST_F(AdapterRefreshTest, ReplaceAddsAndReplaces) {
  const auto directory = changedDirectory(AdapterRefresh::kReplace);
  const auto found = directory->scan();
  EXPECT_EQ(found.added, std::vector<std::string>{"late"});
  EXPECT_EQ(found.replaced, std::vector<std::string>{"a"});
  EXPECT_TRUE(found.removed.empty());
  EXPECT_NE(catalog.find("a")->fingerprint, before->fingerprint);
  EXPECT_NE(catalog.find("b"), nullptr);
  // A removed directory that comes back with other content replaces the adapter.
  adapter("b", root / "served");
  write("b", "other weights");
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"b"});
}

TEST_F(AdapterDirectoryTest, AnAdapterThatVanishedBeforeItsFirstUseLeavesTheList) {
  adapter("a", root / "served");
  adapter("b", root / "served");
  auto directory = open();
  directory->scan();
  fs::remove_all(root / "served/a");
  EXPECT_NE(errorOf(engine.loads.at(1)), "");
  EXPECT_EQ(catalog.find("a"), nullptr);
  EXPECT_EQ(catalog.list().size(), 2u);
  EXPECT_EQ(engine.registered, (std::map<executor::IdType, std::string>{{2, "b"}}));
  fs::remove_all(root / "served/b");
  EXPECT_EQ(directory->scan().removed, std::vector<std::string>{"b"});
  EXPECT_EQ(catalog.list().size(), 1u);
}

TEST_F(AdapterDirectoryTest, ALoadThatFindsNoFilesEndsTheName) {
  for (const char* what : {"", "adapter_config.json", "adapter_model.safetensors"}) {
    SCOPED_TRACE(what);
    engine.registered.clear();
    const fs::path dir = adapter("a", root / "served");
    auto directory = open();
    directory->scan();
    const auto load = engine.loads.at(*catalog.find("a")->adapter_id);
    fs::rename(dir, root / "aside");
    fs::rename(root / "aside", dir);
    fs::remove_all(dir / what);
    if (std::string(what) == "adapter_config.json") fs::remove(dir / "adapter_model.safetensors");
    EXPECT_NE(errorOf(load), "");
    EXPECT_EQ(catalog.find("a"), nullptr);
    EXPECT_TRUE(engine.registered.empty());
    adapter("a", root / "served");
    EXPECT_EQ(directory->scan().added, std::vector<std::string>{"a"});
    catalog.removeAdapter("a");
    fs::remove_all(dir);
  }
}

TEST_F(AdapterDirectoryTest, ADirectoryThatIsBackInAMomentStays) {
  const fs::path dir = adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  fs::rename(dir, root / "aside");
  int looks = 0;
  const auto before_each_look = [&] {
    if (++looks == 2) fs::rename(root / "aside", dir);
    return false;
  };
  EXPECT_TRUE(directory->scan({.stop = before_each_look}).removed.empty());
  EXPECT_EQ(looks, 2);
  EXPECT_NE(catalog.find("a"), nullptr);
}

TEST_F(AdapterDirectoryTest, LoadsByPathBesideTheDirectories) {
  adapter("placed", root / "served");
  adapter("one", root / "store");
  adapter("two", root / "store");
  auto directory = open({.refresh = AdapterRefresh::kSync, .allowed_roots = {(root / "store").string()}});
  directory->scan();
  using Loaded = AdapterDirectory::Loaded;
  EXPECT_EQ(directory->load("new", root / "store/one", false), Loaded::kAdded);
  const auto id = catalog.find("new")->adapter_id.value();
  engine.loads[id]();
  EXPECT_EQ(directory->load("new", "two", false), Loaded::kExists);
  EXPECT_EQ(directory->load("new", root / "store/one", true), Loaded::kUnchanged);
  EXPECT_EQ(directory->load("new", "two", true), Loaded::kReplaced);
  EXPECT_EQ(engine.registered[id], "two");
  EXPECT_TRUE(directory->scan().replaced.empty());

  // A replacement that fails changes nothing.
  engine.broken = "one";
  const auto before = catalog.find("new")->fingerprint;
  EXPECT_THROW(directory->load("new", "one", true), Error);
  EXPECT_EQ(catalog.find("new")->fingerprint, before);
  EXPECT_EQ(RegisteringEngine::content(directory->load("new", "two", true) == Loaded::kUnchanged
                                           ? Directory::open(root / "store/two")
                                           : Directory::open(root / "store/one")),
            "weights of two");

  // A loaded adapter ends when its directory is removed.
  fs::remove_all(root / "store/two");
  EXPECT_EQ(directory->scan().removed, std::vector<std::string>{"new"});
  EXPECT_EQ(catalog.find("new"), nullptr);
}

TEST_F(AdapterDirectoryTest, AReplacedAdapterIsReadFromItsOwnDirectoryByEarlierRequests) {
  adapter("one", root / "store");
  adapter("two", root / "store");
  auto directory = open({.allowed_roots = {(root / "store").string()}});
  directory->load("new", "one", false);
  const auto id = catalog.find("new")->adapter_id.value();
  const auto earlier = engine.loads[id];
  directory->load("new", "two", true);
  const auto fingerprint = catalog.find("new")->fingerprint;
  const int reads = engine.reads;
  earlier();
  EXPECT_EQ(engine.reads, reads + 1);
  EXPECT_EQ(catalog.find("new")->fingerprint, fingerprint) << "the earlier content is not recorded for the new one";
}

TEST_F(AdapterDirectoryTest, AnAdapterThatIsUnloadedDuringItsFirstLoadStaysAway) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  const auto load = engine.loads.at(1);
  EXPECT_TRUE(directory->unload("a"));
  EXPECT_EQ(errorOf(load), "adapter 'a' was removed while it was loaded");
  EXPECT_EQ(catalog.find("a"), nullptr);
  EXPECT_TRUE(engine.registered.empty());
  EXPECT_EQ(directory->load("a", root / "served/a", false), AdapterDirectory::Loaded::kAdded);
  EXPECT_EQ(errorOf(load), "") << "the request has the content that it asked for";
}

TEST_F(AdapterDirectoryTest, AnUnloadedAdapterStaysAway) {
  adapter("placed", root / "served");
  auto directory = open();
  directory->scan();
  EXPECT_TRUE(directory->unload("placed"));
  EXPECT_FALSE(directory->unload("placed"));
  EXPECT_FALSE(directory->unload("nobody"));
  EXPECT_TRUE(engine.registered.empty());
  EXPECT_TRUE(directory->scan().added.empty());
  EXPECT_TRUE(directory->scan().added.empty()) << "it is not forgotten that the adapter was unloaded";
  EXPECT_EQ(directory->load("placed", root / "served/placed", false), AdapterDirectory::Loaded::kAdded);
  EXPECT_TRUE(directory->unload("placed"));
  // A directory that was removed and made again is a new adapter.
  fs::remove_all(root / "served/placed");
  directory->scan();
  adapter("placed", root / "served");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"placed"});
}

}  // namespace
}  // namespace chorus::server
