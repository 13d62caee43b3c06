// Tokenising any text takes at most 16 bytes per byte of text, in addition to the result.
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/malloc_hook.h"
#include "support/test_paths.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace chorus {
namespace {

const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/tokenizers/";
constexpr int64_t kBytesForEachByte = 16;
// Allowance for the first buffers of each stage.
constexpr int64_t kRoom = int64_t{512} << 10;

std::string repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

std::string letters(size_t bytes) {
  std::string text;
  for (uint32_t x = 1; text.size() < bytes;) {
    x = x * 1664525 + 1013904223;
    text.push_back(static_cast<char>('a' + (x >> 24) % 26));
  }
  return text;
}

class TokenizerMemoryTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerMemoryTest, TokenisingIsBounded) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + name + ".json"), Json(), name);
  const size_t size = size_t{2} << 20;
  const std::pair<const char*, std::string> texts[] = {
      {"English", repeated("It was the best of times, it was the worst of times. ", size)},
      {"one run of letters", letters(size)},
      {"one letter", std::string(size, 'a')},
      {"spaces", std::string(size, ' ')},
      {"line ends", std::string(size, '\n')},
      {"emoji", repeated("\U0001F600\U0001F468\u200D\U0001F469", size)},
      {"marks", repeated("\u0301\u0316", size)},
      {"invalid bytes", repeated("\xFF", size / 4)},
  };
  for (const auto& [what, text] : texts) {
    SCOPED_TRACE(what);
    tokenizer->encode(text.substr(0, 4096), true);  // fills the caches
    test::AllocationWatch watch;
    std::vector<int32_t> ids;
    try {
      ids = tokenizer->encode(text, true);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    const size_t read = toValidUtf8(text).size();
    const auto result = static_cast<int64_t>(ids.size() * sizeof(int32_t));
    EXPECT_LE(watch.peakBytes() - result, kBytesForEachByte * static_cast<int64_t>(read) + kRoom);
    std::printf("%s, %s: %.1f bytes a byte\n", name.c_str(), what,
                static_cast<double>(watch.peakBytes() - result) / static_cast<double>(read));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerMemoryTest,
                         testing::Values("gpt2", "roberta", "llama3", "qwen2", "llama2", "metaspace", "lowercase",
                                         "unigram", "bert"),
                         [](const auto& info) { return std::string(info.param); });

// Regular expressions that have no hand-written splitter.
TEST(TokenizerMemory, RegularExpressionsAreBounded) {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  for (const char* pattern : {"\\p{L}+|\\s+(?!\\S)|\\s+|.", "a*a*b|a", "(?:[a-z]+ ?)+x|."}) {
    document["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
    for (const std::string& text : {letters(1 << 20), std::string(1 << 20, ' '), repeated("ab cd ", 1 << 20)}) {
      test::AllocationWatch watch;
      std::vector<int32_t> ids;
      try {
        ids = tokenizer->encode(text, true);
      } catch (const Error&) {
        // The text may be refused, but within the same memory.
      }
      EXPECT_LE(watch.peakBytes() - static_cast<int64_t>(ids.size() * sizeof(int32_t)),
                kBytesForEachByte * static_cast<int64_t>(text.size()) + kRoom)
          << pattern;
    }
  }
}

// The server plans the memory for tokenizers with memoryBytes(), so it must not be too low.
TEST(TokenizerMemory, TheEstimateIsHonest) {
  for (const char* name : {"gpt2", "llama2", "unigram", "bert"}) {
    const Json document = readJsonFile(kGoldens + name + ".json");
    const test::AllocationWatch watch;
    const auto tokenizer = Tokenizer::fromJson(document, Json(), name);
    const auto held = watch.heldBytes();
    EXPECT_GE(static_cast<int64_t>(tokenizer->memoryBytes()) * 10, held * 8) << name;
    const int64_t cache = int64_t{2} << 20;
    EXPECT_LE(static_cast<int64_t>(tokenizer->memoryBytes()), held * 3 / 2 + cache) << name;
  }
}

}  // namespace
}  // namespace chorus
