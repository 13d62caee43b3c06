#include "text/generation_defaults.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kEnd = 257;  // the tokenizer's own end token

class GenerationDefaultsTest : public ::testing::Test {
 protected:
  GenerationDefaultsTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-defaults-XXXXXX").string();
    dir = mkdtemp(pattern.data());
  }
  ~GenerationDefaultsTest() override { fs::remove_all(dir); }
  void write(const char* name, const char* text) { std::ofstream(dir / name) << text; }
  GenerationDefaults read() { return readGenerationDefaults(dir, kEnd); }

  fs::path dir;
};

TEST_F(GenerationDefaultsTest, WithoutFilesOpenAis) {
  const auto defaults = read();
  EXPECT_EQ(defaults.temperature, 1.0);
  EXPECT_EQ(defaults.top_p, 1.0);
  EXPECT_EQ(defaults.top_k, 0);
  EXPECT_EQ(defaults.end_ids, std::vector<int32_t>{kEnd});
}

TEST_F(GenerationDefaultsTest, ListOfEndIdsAndSampling) {
  write("generation_config.json", R"({"eos_token_id":[5,7,5,257],"temperature":0.6,"top_p":0.9,"top_k":40})");
  write("config.json", R"({"eos_token_id":9})");
  const auto defaults = read();
  EXPECT_EQ(defaults.end_ids, (std::vector<int32_t>{5, 7, 257}));
  EXPECT_EQ(defaults.temperature, 0.6);
  EXPECT_EQ(defaults.top_p, 0.9);
  EXPECT_EQ(defaults.top_k, 40);
}

TEST_F(GenerationDefaultsTest, GreedyWhenTheModelDoesNotSample) {
  write("generation_config.json", R"({"do_sample":false,"temperature":0.6})");
  EXPECT_EQ(read().temperature, 0.0);
}

TEST_F(GenerationDefaultsTest, PenaltiesAndBans) {
  write("generation_config.json", R"({"repetition_penalty":1.05,"no_repeat_ngram_size":3,"min_new_tokens":2,
      "bad_words_ids":[[1],[2,3]],"suppress_tokens":[9],"num_beams":1,"typical_p":1.0,"forced_eos_token_id":null})");
  const auto defaults = read();
  EXPECT_EQ(defaults.repetition_penalty, 1.05);
  EXPECT_EQ(defaults.no_repeat_ngram_size, 3);
  EXPECT_EQ(defaults.min_tokens, 2);
  EXPECT_EQ(defaults.bad_words, (std::vector<std::vector<int32_t>>{{1}, {2, 3}, {9}}));
  write("generation_config.json", R"({"bad_words_ids":null,"min_new_tokens":null,"suppress_tokens":null})");
  EXPECT_TRUE(read().bad_words.empty());
}

TEST_F(GenerationDefaultsTest, ConfigStandsIn) {
  write("generation_config.json", "{}");
  write("config.json", R"({"eos_token_id":9})");
  EXPECT_EQ(read().end_ids, (std::vector<int32_t>{9, kEnd}));
}

TEST_F(GenerationDefaultsTest, MalformedValuesAreNamed) {
  for (const char* bad : {R"({"eos_token_id":"x"})", R"({"eos_token_id":[-1]})", R"({"temperature":"hot"})",
                          R"({"top_p":2})", R"({"do_sample":1})", "{", R"({"repetition_penalty":0})",
                          R"({"no_repeat_ngram_size":-1})", R"({"min_new_tokens":"2"})", R"({"bad_words_ids":[1]})",
                          R"({"bad_words_ids":[[]]})", R"({"bad_words_ids":[[-1]]})", R"({"suppress_tokens":[-2]})"}) {
    fs::remove(dir / "generation_config.json");
    write("generation_config.json", bad);
    EXPECT_THROW(read(), Error) << bad;
  }
}

}  // namespace
}  // namespace chorus
