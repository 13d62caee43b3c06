#include "server/model/served_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "engine/engine.h"
#include "server/model/start_checks.h"
#include "support/test_paths.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ServedEngineTest : public ::testing::Test {
 protected:
  ServedEngineTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-located-XXXXXX").string();
    cache = mkdtemp(pattern.data());
    options.model_directory = (test::sourceDir() / "examples/demo/base").string();
    options.cache_directory = cache.string();
  }
  ~ServedEngineTest() override { fs::remove_all(cache); }

  fs::path cache;
  ServeOptions options;
};

TEST_F(ServedEngineTest, QuantisedAndWholeEnginesAreCachedSeparately) {
  const fs::path whole = locateEngine(options).engine_directory;
  options.quantize = "int4";
  const fs::path quantised = locateEngine(options).engine_directory;
  EXPECT_NE(whole, quantised);
  EXPECT_TRUE(fs::exists(whole / "rank0.engine"));
  const Json config = readJsonFile(quantised / "config.json")["pretrained_config"];
  EXPECT_EQ(config["quantization"]["quant_algo"], "W4A16");
  EXPECT_EQ(config["quantization"]["group_size"], 64) << "which divides the demo's sizes";
  EXPECT_LT(2 * fs::file_size(quantised / "rank0.engine"), fs::file_size(whole / "rank0.engine") * 3 / 2);
  const auto built = fs::last_write_time(quantised / "rank0.engine");
  EXPECT_EQ(locateEngine(options).engine_directory, quantised);
  EXPECT_EQ(fs::last_write_time(quantised / "rank0.engine"), built) << "found, not built again";
  options.activations = "int8";
  const fs::path small = locateEngine(options).engine_directory;
  EXPECT_NE(small, quantised);
  EXPECT_EQ(readJsonFile(small / "config.json")["pretrained_config"]["quantization"]["quant_algo"], "W4A8");
  options.activations = "int8_per_token";
  EXPECT_THAT(errorOf([&] { locateEngine(options); }),
              HasSubstr("--activations int8_per_token: not supported with int4 weights"));
  options.activations = "int8";
  options.dtype = "float32";
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("--activations: W4A8 is not supported in a float32"));
  options.dtype = "auto";
  options.activations.clear();
  options.group_size = 32;
  EXPECT_NE(locateEngine(options).engine_directory, quantised);
  options.group_size = 128;
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("group size 128 does not divide the 704 inputs"));
  options.group_size.reset();
  options.quantize.clear();
  options.activations = "int8";
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("--activations: the model is not quantised"));
}

TEST_F(ServedEngineTest, RuntimeLimitsAreNoPartOfTheKeyAndThoseGivenAtStartHold) {
  const fs::path first = locateEngine(options).engine_directory;
  const auto packed = fs::canonical(first / "rank0.engine");
  const auto built = fs::last_write_time(packed);
  options.max_batch_size = 128;
  options.max_num_tokens = 4096;
  options.max_seq_len = 100;
  options.max_lora_rank = 16;
  const fs::path other = locateEngine(options).engine_directory;
  EXPECT_EQ(fs::canonical(other / "rank0.engine"), packed);
  EXPECT_EQ(fs::last_write_time(packed), built) << "not built again";
  const auto limits = Engine::load(other)->buildConfig();
  EXPECT_EQ(limits.max_batch_size, 128);
  EXPECT_EQ(limits.max_num_tokens, 4096);
  EXPECT_EQ(limits.max_seq_len, 100);
  EXPECT_EQ(limits.max_input_len, 100);
  EXPECT_EQ(limits.max_lora_rank, 16);
  // A server that was started with the first limits, and still runs, keeps them.
  EXPECT_EQ(Engine::load(first)->buildConfig().max_batch_size, 64);
  EXPECT_EQ(Engine::load(first)->buildConfig().max_lora_rank, 64);
  EXPECT_EQ(locateEngine(options).engine_directory, other);
}

TEST_F(ServedEngineTest, AnEngineThatIsBuiltAnewHasTheLimitsToo) {
  options.max_batch_size = 7;
  const ServedEngine served = locateEngine(options);
  fs::remove_all(served.engine_directory);
  served.rebuild();
  EXPECT_EQ(Engine::load(served.engine_directory)->buildConfig().max_batch_size, 7);
}

// Creates a Hugging Face directory with sparse weights: 141 GB, unless there are fewer shards.
fs::path sparseModel(const fs::path& dir, const Json& config, int shards = 30) {
  fs::create_directories(dir);
  std::ofstream(dir / "config.json") << config;
  for (int i = 0; i < shards; ++i) {
    const fs::path shard = dir / fmt::format("model-{:05}-of-00030.safetensors", i + 1);
    std::ofstream(shard).put('\0');
    fs::resize_file(shard, uint64_t{4'700'000'000});
  }
  return dir;
}

// Upper bound on the bytes read from files since the process started, by read() and by touching mapped pages.
uint64_t bytesTouched() {
  std::ifstream io("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (io >> key >> value && key != "rchar:") continue;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  constexpr uint64_t kFaultAround = 64 << 10;
  return value + static_cast<uint64_t>(usage.ru_minflt + usage.ru_majflt) * kFaultAround;
}

TEST_F(ServedEngineTest, AnUnknownArchitectureIsRefusedWithoutReadingTheWeights) {
  const Json config = {{"architectures", {"UnheardOfForCausalLM"}}};
  // The first use of the program's own pages counts too, so it happens before the measurement.
  options.model_directory = sparseModel(cache / "empty", config, 0).string();
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("UnheardOfForCausalLM"));
  options.model_directory = sparseModel(cache / "huge", config).string();
  const uint64_t before = bytesTouched();
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("UnheardOfForCausalLM"));
  EXPECT_LT(bytesTouched() - before, uint64_t{64} << 20);
  EXPECT_FALSE(fs::exists(cache / "engines/digests.json"));
}

TEST_F(ServedEngineTest, CheapChecksRunBeforeTheFilesAreHashed) {
  const fs::path demo = options.model_directory;
  const fs::path model = cache / "model";
  fs::copy(demo, model);
  options.model_directory = model.string();
  const auto refused = [&](std::string_view why) {
    const std::string error = errorOf([&] { locateEngine(options); });
    EXPECT_THAT(error, HasSubstr(why));
    EXPECT_FALSE(fs::exists(cache / "engines/digests.json")) << error;
  };
  options.lora_directories = {(cache / "nowhere").string()};
  refused("--lora_dir");
  options.lora_directories.clear();

  writeFileAtomically(model / "generation_config.json", R"({"eos_token_id": 99999999})");
  refused("end token 99999999");
  fs::remove(model / "generation_config.json");
  const std::string tokenizer = readFile(model / "tokenizer.json", size_t{64} << 20);
  writeFileAtomically(model / "tokenizer.json", "{");
  refused("tokenizer.json");
  writeFileAtomically(model / "tokenizer.json", tokenizer);
  Json config = readJsonFile(model / "tokenizer_config.json");
  config["chat_template"] = "{% if %}";
  writeFileAtomically(model / "tokenizer_config.json", config.dump());
  refused("template");
  fs::copy_file(demo / "tokenizer_config.json", model / "tokenizer_config.json", fs::copy_options::overwrite_existing);

  options.max_seq_len = 1 << 28;
  options.max_cpu_loras = 1 << 20;
  refused("the model does not fit");
  options.max_seq_len.reset();
  options.max_cpu_loras.reset();
  fs::resize_file(model / "model.safetensors", 1000);
  refused("model.safetensors");
  EXPECT_THAT(errorOf([&] { checkDiskSpace(cache, uint64_t{1} << 60); }), HasSubstr("choose another --cache_dir"));
  EXPECT_EQ(errorOf([&] { checkDiskSpace(cache, 1); }), "");
}

TEST_F(ServedEngineTest, TheLargestRankOfAReadyEngineIsItsOwn) {
  const fs::path model = options.model_directory;
  options.max_lora_rank = 16;
  options.engine_directory = locateEngine(options).engine_directory.string();
  options.tokenizer_directory = model.string();
  options.model_directory.clear();
  EXPECT_EQ(errorOf([&] { locateEngine(options); }), "");
  options.max_lora_rank = 8;
  EXPECT_EQ(errorOf([&] { locateEngine(options); }), "");
  EXPECT_EQ(adapterCacheConfig(options).getMaxAdapterSize(), 8);
  options.max_lora_rank = 17;
  EXPECT_THAT(errorOf([&] { locateEngine(options); }), HasSubstr("--max_lora_rank 17: the engine"));
}

TEST_F(ServedEngineTest, AReadyEngineIsNotQuantised) {
  options.engine_directory = cache.string();
  options.tokenizer_directory = options.model_directory;
  options.model_directory.clear();
  options.quantize = "int8";
  EXPECT_THAT(errorOf([&] { locateEngine(options); }),
              HasSubstr("--quantize applies only to a Hugging Face directory"));
  options.quantize.clear();
  options.activations = "int8";
  EXPECT_THAT(errorOf([&] { locateEngine(options); }),
              HasSubstr("--activations applies only to a Hugging Face directory"));
}

}  // namespace
}  // namespace chorus::server
