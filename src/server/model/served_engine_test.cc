#include "server/model/served_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/error_of.h"
#include "base/json.h"
#include "engine/engine.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ServedEngineTest : public ::testing::Test {
 protected:
  ServedEngineTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-located-XXXXXX").string();
    cache = mkdtemp(pattern.data());
    options.modelDirectory = (fs::path(CHORUS_SOURCE_DIR) / "examples/demo/base").string();
    options.cacheDirectory = cache.string();
  }
  ~ServedEngineTest() override { fs::remove_all(cache); }

  fs::path cache;
  ServeOptions options;
};

TEST_F(ServedEngineTest, AQuantisedEngineStandsBesideTheWholeOne) {
  const fs::path whole = locateEngine(options).engineDirectory;
  options.quantize = "int4";
  const fs::path quantised = locateEngine(options).engineDirectory;
  EXPECT_NE(whole, quantised);
  EXPECT_TRUE(fs::exists(whole / "rank0.engine"));
  const Json config = readJsonFile(quantised / "config.json")["pretrained_config"];
  EXPECT_EQ(config["quantization"]["quant_algo"], "W4A16");
  EXPECT_EQ(config["quantization"]["group_size"], 64) << "which divides the demo's sizes";
  EXPECT_LT(2 * fs::file_size(quantised / "rank0.engine"), fs::file_size(whole / "rank0.engine") * 3 / 2);
  const auto built = fs::last_write_time(quantised / "rank0.engine");
  EXPECT_EQ(locateEngine(options).engineDirectory, quantised);
  EXPECT_EQ(fs::last_write_time(quantised / "rank0.engine"), built) << "found, not built again";
  options.groupSize = 32;
  EXPECT_NE(locateEngine(options).engineDirectory, quantised);
  options.groupSize = 128;
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("group size 128 does not divide the 704 inputs"));
}

TEST_F(ServedEngineTest, RuntimeLimitsAreNoPartOfTheKeyAndThoseGivenAtStartHold) {
  const fs::path first = locateEngine(options).engineDirectory;
  const auto packed = fs::canonical(first / "rank0.engine");
  const auto built = fs::last_write_time(packed);
  options.maxBatchSize = 128;
  options.maxNumTokens = 4096;
  options.maxSeqLen = 100;
  options.maxLoraRank = 16;
  const fs::path other = locateEngine(options).engineDirectory;
  EXPECT_EQ(fs::canonical(other / "rank0.engine"), packed);
  EXPECT_EQ(fs::last_write_time(packed), built) << "not built again";
  const auto limits = Engine::load(other)->buildConfig();
  EXPECT_EQ(limits.max_batch_size, 128);
  EXPECT_EQ(limits.max_num_tokens, 4096);
  EXPECT_EQ(limits.max_seq_len, 100);
  EXPECT_EQ(limits.max_input_len, 100);
  EXPECT_EQ(limits.max_lora_rank, 16);
  // A server that was started with the first limits, and goes on, keeps them.
  EXPECT_EQ(Engine::load(first)->buildConfig().max_batch_size, 64);
  EXPECT_EQ(Engine::load(first)->buildConfig().max_lora_rank, 64);
  EXPECT_EQ(locateEngine(options).engineDirectory, other);
}

TEST_F(ServedEngineTest, AnEngineThatIsBuiltAnewHasTheLimitsToo) {
  options.maxBatchSize = 7;
  const ServedEngine served = locateEngine(options);
  fs::remove_all(served.engineDirectory);
  served.rebuild();
  EXPECT_EQ(Engine::load(served.engineDirectory)->buildConfig().max_batch_size, 7);
}

TEST_F(ServedEngineTest, AReadyEngineIsNotQuantised) {
  options.engineDirectory = cache.string();
  options.tokenizerDirectory = options.modelDirectory;
  options.modelDirectory.clear();
  options.quantize = "int8";
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("--quantize only acts on a Hugging Face directory"));
}

}  // namespace
}  // namespace chorus::server
