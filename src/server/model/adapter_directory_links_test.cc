// Symbolic links in adapter directories: which are followed, and that none leads out.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/testing/error_of.h"
#include "server/testing/adapter_directory_fixture.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

TEST_F(AdapterDirectoryTest, LinksThatLeadNowhereKeepNobodyOut) {
  adapter("good", root / "served");
  fs::create_symlink("nowhere", root / "served" / "dangling");
  fs::create_symlink("circle", root / "served" / "circle");
  fs::create_symlink(".", root / "served" / "itself");
  fs::create_symlink("circle", adapter("holds_a_circle", root / "served") / "circle");
  auto directory = open();
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"good"});
  adapter("late", root / "served");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"late"});
  fs::remove(root / "served" / "holds_a_circle" / "circle");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"holds_a_circle"});
}

// Repositories in huggingface_hub's layout.
class HubCacheTest : public AdapterDirectoryTest {
 protected:
  fs::path repository(const std::string& name, const std::string& weights) {
    const fs::path dir = root / "served" / name;
    fs::create_directories(dir / "blobs");
    fs::create_directories(dir / "refs");
    std::ofstream(dir / "blobs/1111") << "{}";
    std::ofstream(dir / "blobs/2222") << weights;
    std::ofstream(dir / "refs/main") << "abcd";
    snapshot(dir, "abcd");
    return dir;
  }
  static void snapshot(const fs::path& dir, const std::string& revision) {
    fs::create_directories(dir / "snapshots" / revision);
    fs::create_symlink("../../blobs/1111", dir / "snapshots" / revision / "adapter_config.json");
    fs::create_symlink("../../blobs/2222", dir / "snapshots" / revision / "adapter_model.safetensors");
  }
};

TEST_F(HubCacheTest, LinksThatStayWithinACachesBlobsAreFollowed) {
  const fs::path dir = repository("models--org--math", "weights of math");
  snapshot(dir, "old");
  adapter("plain", root / "served");
  auto directory = open();
  EXPECT_EQ(directory->scan().added, (std::vector<std::string>{"models--org--math", "plain"}));
  engine.loadAll();
  EXPECT_EQ(catalog.find("models--org--math")->fingerprint, "fp_weights of m");
  // Adds a newer revision, as a download does.
  std::ofstream(dir / "blobs/3333") << "newer weights";
  fs::create_directories(dir / "snapshots/efgh");
  fs::create_symlink("../../blobs/1111", dir / "snapshots/efgh/adapter_config.json");
  fs::create_symlink("../../blobs/3333", dir / "snapshots/efgh/adapter_model.safetensors");
  std::ofstream(dir / "refs/main") << "efgh\n";
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"models--org--math"});
}

TEST_F(HubCacheTest, ACachesLinksDoNotLeaveTheirRepository) {
  adapter("secret", root / "served");
  std::ofstream(root / "outside") << "weights of somebody";
  const fs::path one = repository("models--org--one", "weights");
  repository("models--org--two", "weights of two");
  int id = 0;
  for (const char* target :
       {"../../../secret/adapter_model.safetensors", "../../../models--org--two/blobs/2222", "../../../../outside"}) {
    fs::remove(one / "snapshots/abcd/adapter_model.safetensors");
    fs::create_symlink(target, one / "snapshots/abcd/adapter_model.safetensors");
    EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"models--org--two", "secret"})) << target << ++id;
  }
  fs::remove(one / "snapshots/abcd/adapter_model.safetensors");
  fs::create_symlink((root / "outside").string(), one / "blobs/4444");
  fs::create_symlink("../../blobs/4444", one / "snapshots/abcd/adapter_model.safetensors");
  EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"models--org--two", "secret"})) << "a blob that is a link";
  for (const char* main : {"../../models--org--two/snapshots/abcd", "..", "", "none"}) {
    std::ofstream(one / "refs/main") << main;
    EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"models--org--two", "secret"})) << main;
  }
}

TEST_F(HubCacheTest, SnapshotsOfOneRepositoryCanBeTheDirectory) {
  const fs::path dir = repository("models--org--math", "weights of math");
  const auto load_text = [this](const Directory&, WorkMeter&, bool) { return catalog.base().text; };
  AdapterDirectory directory({(dir / "snapshots").string()}, catalog, engine, load_text);
  EXPECT_EQ(directory.scan().added, std::vector<std::string>{"abcd"});
  EXPECT_EQ(errorOf(engine.loads.at(1)), "");
  fs::remove(dir / "refs/main");
  EXPECT_EQ(open()->scan().added, std::vector<std::string>{"models--org--math"}) << "its only snapshot";
  snapshot(dir, "second");
  EXPECT_TRUE(open()->scan().added.empty()) << "which of the two is not said";
}

TEST_F(AdapterDirectoryTest, LinksOutAreRefused) {
  const fs::path outside = adapter("outside", root);
  fs::create_directory_symlink(outside, root / "served" / "link");
  const fs::path inside = adapter("inside", root / "served");
  fs::create_symlink(outside / "adapter_model.safetensors", inside / "extra.bin");
  adapter("real", root / "served");
  fs::create_directory_symlink(root / "served" / "real", root / "served" / "alias");
  fs::create_symlink("../../real/adapter_model.safetensors", adapter("thief", root / "served") / "theirs");
  fs::create_symlink("adapter_model.safetensors", adapter("within", root / "served") / "same");
  EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"real", "within"}));
  EXPECT_EQ(open({.links = Links::kFollow})->scan().added,
            (std::vector<std::string>{"alias", "inside", "link", "real", "thief", "within"}));
}

TEST_F(AdapterDirectoryTest, LoadsAreConfinedToo) {
  const fs::path dir = adapter("a", root / "served");
  adapter("outside", root);
  auto directory = open();
  directory->scan();
  fs::remove(dir / "adapter_model.safetensors");
  fs::create_symlink(root / "outside/adapter_model.safetensors", dir / "adapter_model.safetensors");
  EXPECT_NE(errorOf(engine.loads.at(1)).find("a link that leads"), std::string::npos);
  fs::rename(dir, root / "kept");
  fs::create_directory_symlink(root / "outside", dir);
  EXPECT_NE(errorOf(engine.loads.at(1)).find("a link that leads"), std::string::npos);
}

// A tenant swaps its weights for a link to another tenant's while they are read.
TEST_F(AdapterDirectoryTest, NoSwapBringsInWhatIsAnothers) {
  const fs::path dir = adapter("a", root / "served");
  adapter("secret", root / "served");
  std::atomic<bool> stop = false;
  std::thread swapper([&] {
    while (!stop) {
      std::ofstream(root / "plain") << "weights of a";
      fs::rename(root / "plain", dir / "adapter_model.safetensors");
      fs::create_symlink("../secret/adapter_model.safetensors", root / "swap");
      fs::rename(root / "swap", dir / "adapter_model.safetensors");
    }
  });
  const auto top = Directory::open(root / "served", Links::kNone);
  for (int i = 0; i < 3000; ++i) {
    try {
      const Descriptor fd = top->openDirectory("a", Links::kInside)->openFile("adapter_model.safetensors");
      EXPECT_NE(readDescriptor(fd.get(), "x", 100), "weights of secret");
    } catch (const Error&) {
    }
  }
  stop = true;
  swapper.join();
}

}  // namespace
}  // namespace chorus::server
