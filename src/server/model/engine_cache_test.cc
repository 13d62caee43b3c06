#include "server/model/engine_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "convert/sources/huggingface.h"
#include "engine/packing_version.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

class EngineCacheTest : public ::testing::Test {
 protected:
  EngineCacheTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-cache-XXXXXX").string();
    root = mkdtemp(pattern.data());
    cache = root / "cache";
    model = root / "model";
    fs::create_directories(model);
    write(model / "config.json", "{}");
    write(model / "model.safetensors", "weights");
  }
  ~EngineCacheTest() override { fs::remove_all(root); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }
  EngineCache::Builder builder() {
    return [this](const fs::path& work, const fs::path& engine) {
      ++builds;
      write(work / "checkpoint", std::string(1000, 'c'));
      fs::create_directories(engine);
      write(engine / "rank0.engine", "packed");
    };
  }
  EngineSource source(const std::string& dtype = "auto") {
    return {model, [this] { return huggingFaceReader().files(model); }, dtype};
  }
  std::string key(const std::string& dtype = "auto") { return EngineCache(cache).keyFor(source(dtype)); }
  // Builds or finds the engine, and returns its key.
  std::string ensure(const std::string& dtype) {
    EngineCache(cache).ensure(key(dtype), source(dtype), builder());
    return key(dtype);
  }
  // Names in the cache's root, without locks and digests.json.
  std::vector<std::string> entries() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(cache)) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(".lock") && name != "digests.json") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path root, cache, model;
  std::atomic<int> builds{0};
};

TEST_F(EngineCacheTest, KeyNamesAllThatMatters) {
  const std::string first = key();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(key(), first);
  EXPECT_NE(key("float32"), first);
  write(model / "tokenizer.json", "{}");
  EXPECT_EQ(key(), first) << "the engine does not depend on it";
  write(model / "config.json", "{ }");
  const std::string second = key();
  EXPECT_NE(second, first);
  write(model / "model-2.safetensors", "");
  EXPECT_NE(key(), second);
}

// The key depends on the content, the words for the weights and the packing version, but not on limits or the program.
TEST_F(EngineCacheTest, ANewProgramVersionReusesAnEngineOfTheSamePackingVersion) {
  const auto digest = [](const std::string& text) {
    Sha256 hash;
    hash.update(text);
    return hash.hex();
  };
  const std::string named = "config.json 2 " + digest("{}") + "\nmodel.safetensors 7 " + digest("weights") +
                            "\nweights auto\npacking " + std::to_string(kPackingVersion) + "\n";
  EXPECT_EQ(key(), digest(named).substr(0, 32));
}

TEST_F(EngineCacheTest, ContentOfEqualSizeAndTimeIsNoticed) {
  // The cache remembers the hash of a file only if the file has not changed for 2 s.
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  const std::string first = key();
  struct stat before{};
  stat((model / "model.safetensors").c_str(), &before);
  write(model / "model.safetensors", "WEIGHTS");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  utimensat(AT_FDCWD, (model / "model.safetensors").c_str(), times, 0);
  EXPECT_NE(key(), first);
}

TEST_F(EngineCacheTest, MissingModel) {
  fs::remove(model / "config.json");
  EXPECT_THROW(key(), Error);
}

TEST_F(EngineCacheTest, BuiltOnceThenReused) {
  const std::string k = key();
  const fs::path engine = EngineCache(cache).ensure(k, source(), builder());
  EXPECT_EQ(readFile(engine / "rank0.engine", 100), "packed");
  EXPECT_EQ(EngineCache(cache).ensure(k, source(), builder()), engine);
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(entries(), std::vector<std::string>{k});
  EXPECT_FALSE(fs::exists(engine.parent_path() / "work"));
}

TEST_F(EngineCacheTest, DamageIsNoticedAndRebuilt) {
  const std::string k = key();
  const fs::path engine = EngineCache(cache).ensure(k, source(), builder());
  write(engine / "rank0.engine", "pAcked");
  EXPECT_EQ(readFile(EngineCache(cache).ensure(k, source(), builder()) / "rank0.engine", 100), "packed");
  fs::remove(engine / "rank0.engine");
  EXPECT_TRUE(fs::exists(EngineCache(cache).ensure(k, source(), builder()) / "rank0.engine"));
  write(engine.parent_path() / "manifest.json", "{");
  EngineCache(cache).ensure(k, source(), builder());
  EXPECT_EQ(builds, 4);
  EngineCache(cache).discard(k);
  EXPECT_TRUE(entries().empty());
}

TEST_F(EngineCacheTest, TwoAtOnceBuildOnce) {
  const std::string k = key();
  const auto slow = [&](const fs::path& work, const fs::path& engine) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    builder()(work, engine);
  };
  std::thread other([&] { EngineCache(cache).ensure(k, source(), slow); });
  EngineCache(cache).ensure(k, source(), slow);
  other.join();
  EXPECT_EQ(builds, 1);
}

TEST_F(EngineCacheTest, FailureLeavesNothingAndOldStateIntact) {
  const std::string k = key();
  const auto refuses = [&](const fs::path& work, const fs::path&) {
    write(work / "partial", "x");
    fail(ErrorCode::kUnsupported, "config.json: an unknown architecture");
  };
  const std::string other = ensure("float32");
  try {
    EngineCache(cache).ensure(k, source(), refuses);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "config.json: an unknown architecture");
  }
  EXPECT_EQ(entries(), std::vector<std::string>{other});
}

TEST_F(EngineCacheTest, AModelThatChangesWhileItIsBuiltIsRefused) {
  const std::string k = key();
  const auto changes = [&](const fs::path& file) {
    try {
      EngineCache(cache).ensure(k, source(), [&](const fs::path& work, const fs::path& engine) {
        builder()(work, engine);
        write(model / file, "other");
      });
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  const std::string refusal =
      model.string() + ": the model changed while it was prepared; start again when it is complete";
  EXPECT_EQ(changes("model.safetensors"), refusal);
  EXPECT_TRUE(entries().empty());
  write(model / "model.safetensors", "weights");
  EXPECT_EQ(changes("model-2.safetensors"), refusal) << "a new file";
  fs::remove(model / "model-2.safetensors");
  EngineCache(cache).ensure(k, source(), builder());
  EXPECT_EQ(entries(), std::vector<std::string>{k});
}

TEST_F(EngineCacheTest, FullDiskIsOneClearLine) {
  const std::string k = key();
  const auto large = [&](const fs::path&, const fs::path& engine) {
    fs::create_directories(engine);
    writeFileAtomically(engine / "rank0.engine", std::string(1 << 20, 'x'));
  };
  // Writes beyond the limit fail as on a full disk.
  struct sigaction ignore{}, oldAction{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &oldAction);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tight{64 << 10, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  std::string message;
  try {
    EngineCache(cache).ensure(k, source(), large);
  } catch (const Error& e) {
    message = e.what();
    EXPECT_EQ(e.code(), ErrorCode::kExhausted);
  }
  setrlimit(RLIMIT_FSIZE, &old);
  sigaction(SIGXFSZ, &oldAction, nullptr);
  EXPECT_NE(message.find("free space there or choose another --cache_dir"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_TRUE(entries().empty());
  EngineCache(cache).ensure(k, source(), builder());
  EXPECT_EQ(entries(), std::vector<std::string>{k});
}

TEST_F(EngineCacheTest, LeftoversOfTheDeadAreRemoved) {
  const std::string k = key();
  const std::string dead(32, 'd');
  fs::create_directories(cache / ("building-" + dead + "-1"));
  fs::create_directories(cache / ("building-" + k + "-1"));
  EngineCache(cache).ensure(k, source(), builder());
  EXPECT_EQ(entries(), std::vector<std::string>{k});
}

TEST_F(EngineCacheTest, TwoLatestOfAModelStay) {
  std::vector<std::string> keys;
  for (const char* dtype : {"float32", "float16", "bfloat16"}) {
    keys.push_back(ensure(dtype));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  fs::copy(model, root / "another");
  model = root / "another";
  write(model / "config.json", "{ }");
  keys.push_back(ensure("auto"));
  keys.erase(keys.begin());
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(entries(), keys);
}

}  // namespace
}  // namespace chorus::server
