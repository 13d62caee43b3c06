#include "server/openai/log_probs.h"

#include <gtest/gtest.h>

#include "server/testing/fakes.h"

namespace chorus::server {
namespace {

class CountingCodec : public FakeCodec {
 public:
  std::string tokenBytes(int32_t token) const override {
    ++calls;
    return FakeCodec::tokenBytes(token);
  }
  mutable int calls = 0;
};

TEST(LogProbs, TheBytesOfATokenAreFoundOnce) {
  std::vector<TokenLogProb> tokens;
  for (int i = 0; i < 50; ++i) tokens.push_back({'a' + i % 2, -0.5f, {{'a', -0.5f}, {'b', -1.0f}, {'c', -2.0f}}});
  GenerationOptions options;
  options.log_probs = true;
  options.top_log_probs = 3;
  CountingCodec text;
  int64_t offset = 0;
  const OrderedJson json = completionLogProbs(text, options, tokens, offset);
  EXPECT_EQ(text.calls, 3);
  EXPECT_EQ(offset, 50);
  EXPECT_EQ(json["tokens"][49], "b");
  EXPECT_EQ(json["top_logprobs"][49], (OrderedJson{{"a", -0.5}, {"b", -1.0}, {"c", -2.0}}));
  text.calls = 0;
  EXPECT_EQ(logProbEntries(text, tokens)[49]["top_logprobs"][2]["token"], "c");
  EXPECT_EQ(text.calls, 3);
}

}  // namespace
}  // namespace chorus::server
