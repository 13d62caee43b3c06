#include "text/tokenizer/token_bytes.h"
#include "support/test_paths.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/tokenizers/";

std::string bytesOf(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenBytes(tokenizer, id);
  return bytes;
}

class TokenBytesTest : public ::testing::TestWithParam<const char*> {};

// The bytes of the tokens join to the text, even if the tokenizer splits characters.
TEST_P(TokenBytesTest, JoinToTheText) {
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + GetParam() + ".json"), Json(), GetParam());
  for (const std::string text :
       {"the cat sat", "caf\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80\xf0\x9f\xa6\x99", "a  b\n\tc"}) {
    const auto ids = tokenizer->encode(text, false);
    const std::string bytes = bytesOf(*tokenizer, ids), decoded = tokenizer->decode(ids, false);
    // If a tokenizer prepends a space, its first token contains the space and its decoder drops it.
    EXPECT_TRUE(bytes == decoded || bytes == " " + decoded) << bytes;
  }
  EXPECT_EQ(tokenBytes(*tokenizer, tokenizer->vocabSize()), "");
}

INSTANTIATE_TEST_SUITE_P(All, TokenBytesTest,
                         ::testing::Values("gpt2", "roberta", "llama3", "qwen2", "llama2", "metaspace"));

}  // namespace
}  // namespace chorus
