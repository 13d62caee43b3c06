#include "engine/engine_directory.h"

#include <gmock/gmock.h>

#include <fstream>

#include "engine/testing/random_engine.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

class EngineDirectoryTest : public RandomEngineTest {
 protected:
  fs::path make(uint64_t seed) { return makeEngine(randomModel({.tp_size = 2}), smallBuild(), seed); }
  static void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }
};

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
