#include "text/incremental_detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> tokenizerOf(const std::string& name) {
  const auto path = test::sourceDir() / "tests/goldens/text/tokenizers" / (name + ".json");
  return Tokenizer::fromJson(readJsonFile(path), Json::object(), path.string());
}

std::string textAfter(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& before, const Ids& ids) {
  IncrementalDetokenizer detokenizer(tokenizer, true, nullptr, before);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.feed(id);
  return text + detokenizer.flush();
}

TEST(IncrementalDetokenizerTest, ATextThatGoesOnKeepsItsFirstSpace) {
  for (const char* name : {"llama2", "unigram", "metaspace", "gpt2", "llama3", "qwen2", "roberta"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = tokenizerOf(name);
    const Ids ids = tokenizer->encode("the big cat sat with the small dog", false);
    const std::string whole = tokenizer->decode(ids, true);
    ASSERT_GT(ids.size(), 2u);
    for (auto at = ids.begin() + 1; at != ids.end(); ++at) {
      const Ids before(ids.begin(), at), rest(at, ids.end());
      EXPECT_EQ(tokenizer->decode(before, true) + textAfter(tokenizer, before, rest), whole);
    }
    EXPECT_EQ(textAfter(tokenizer, {}, ids), whole);
  }
}

TEST(IncrementalDetokenizerTest, NothingOfTheTextBeforeIsAdded) {
  const auto tokenizer = tokenizerOf("llama2");
  const Ids with = tokenizer->encode("with", false);
  EXPECT_EQ(tokenizer->decode(with, true), "with");
  EXPECT_EQ(textAfter(tokenizer, {1}, with), "with") << "a special token has no text";
  const Ids snowman = tokenizer->encode("\u2603", false);  // bytes, after a space
  ASSERT_GE(snowman.size(), 3u);
  EXPECT_EQ(textAfter(tokenizer, {snowman.end() - 3, snowman.end() - 1}, with), " with") << "an incomplete character";
  EXPECT_EQ(textAfter(tokenizer, {snowman.end() - 3, snowman.end() - 1}, {snowman.back()}), "\uFFFD");
  EXPECT_EQ(textAfter(tokenizer, with, {}), "");
}

}  // namespace
}  // namespace chorus
