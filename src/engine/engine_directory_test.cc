#include "engine/engine_directory.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/testing/error_of.h"
#include "engine/engine.h"
#include "engine/testing/random_engine.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EngineDirectoryTest : public RandomEngineTest {
 protected:
  fs::path make(uint64_t seed) { return makeEngine(randomModel({.tp_size = 2}), smallBuild(), seed); }
  static std::string refusal(const fs::path& engine, int32_t rank) {
    return errorOf([&] { Engine::load(engine, rank); });
  }
  static void copy(const fs::path& from, const fs::path& to, const char* name) {
    fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
  }
  static void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }
  static Json configOf(const fs::path& engine) { return readJsonFile(engine / "config.json"); }
};

TEST_F(EngineDirectoryTest, FilesOfTwoBuildsAreRefused) {
  const fs::path first = make(1), second = make(2);
  const std::string message = "this file and config.json are of different builds; copy the whole engine again, or run";
  for (int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(refusal(first, rank), "");
  const fs::path linked = dir_ / "linked";
  linkEngine(first, linked, smallBuild());
  copy(second, first, "rank1.engine");
  for (const fs::path& engine : {first, linked}) {
    EXPECT_EQ(refusal(engine, 0), "");
    EXPECT_THAT(refusal(engine, 1), HasSubstr("rank1.engine: " + message));
  }
  copy(second, first, "config.json");
  EXPECT_THAT(refusal(first, 0), HasSubstr("rank0.engine: " + message));
  EXPECT_EQ(refusal(first, 1), "");
}

TEST_F(EngineDirectoryTest, AConfigMayLackDigestsButNotSome) {
  const fs::path engine = make(1);
  Json config = configOf(engine);
  const Json digests = config["rank_digests"];
  ASSERT_EQ(digests.size(), 2u);
  config["rank_digests"] = Json::array({digests[0]});
  write(engine / "config.json", config.dump());
  EXPECT_THAT(refusal(engine, 0), HasSubstr("'rank_digests' must be a list with a digest for each of the 2 ranks"));
  config.erase("rank_digests");
  write(engine / "config.json", config.dump());
  EXPECT_EQ(refusal(engine, 0), "");
}

TEST_F(EngineDirectoryTest, OnlyAnEngineOfThisProgramIsReplaced) {
  const fs::path engine = make(1);
  EXPECT_EQ(foreignToEngine(engine), std::nullopt);
  write(engine / "notes.txt", "mine");
  EXPECT_EQ(foreignToEngine(engine), "notes.txt");
  fs::remove(engine / "notes.txt");
  fs::create_directory(engine / "rank7.engine");
  EXPECT_EQ(foreignToEngine(engine), "rank7.engine");
  fs::remove(engine / "rank7.engine");
  fs::create_symlink("missing", engine / "rank7.engine");
  EXPECT_EQ(foreignToEngine(engine), std::nullopt) << "the link of an engine that was removed";
  write(engine / "rank0.engine", "");
  EXPECT_EQ(foreignToEngine(engine), std::nullopt) << "a damaged engine";

  // TensorRT-LLM's files have the same names.
  write(engine / "config.json",
        R"({"version": "0.17", "pretrained_config": {}, "build_config": {"max_input_len": 9}})");
  EXPECT_EQ(foreignToEngine(engine), std::nullopt) << "another rank's file is the program's";
  write(engine / "rank1.engine", "ftrt");
  EXPECT_EQ(foreignToEngine(engine), "config.json");
  fs::remove(engine / "config.json");
  EXPECT_EQ(foreignToEngine(engine), "rank0.engine");

  const fs::path other = dir_ / "other";
  fs::create_directory(other);
  write(other / "config.json", R"({"architectures": ["LlamaForCausalLM"]})");
  EXPECT_EQ(foreignToEngine(other), "config.json");
}

}  // namespace
}  // namespace chorus
