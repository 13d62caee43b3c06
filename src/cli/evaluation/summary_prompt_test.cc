#include "cli/evaluation/summary_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"
#include "cli/evaluation/summary_report.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A token for each byte; token 1 before a text and token 2 after it. A chat is S<system>U<user>A.
class ByteCodec final : public TextCodec {
 public:
  using TextCodec::encode;
  std::vector<int32_t> encode(std::string_view text, bool special, WorkMeter& /*meter*/,
                              const EncodeLimits& /*limits*/) const override {
    std::vector<int32_t> tokens(text.begin(), text.end());
    if (special) {
      tokens.insert(tokens.begin(), 1);
      tokens.push_back(2);
    }
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens, bool /*skip*/) const override {
    return {tokens.begin(), tokens.end()};
  }
  std::string tokenBytes(int32_t token) const override { return {static_cast<char>(token)}; }
  std::string tokenText(int32_t token) const override { return tokenBytes(token); }
  std::unique_ptr<TextStream> newStream(const TextStreamOptions& /*options*/) const override { return nullptr; }
  int32_t vocabSize() const override { return 128; }
  std::optional<int32_t> eosTokenId() const override { return 2; }
  bool hasChatTemplate() const override { return true; }
  bool hasChatTemplate(const std::string& /*name*/) const override { return false; }
  std::string renderChat(const OrderedJson& messages, const ChatRendering& /*how*/,
                         WorkMeter& /*meter*/) const override {
    return "S" + messages.at(0).at("content").get<std::string>() + "U" +
           messages.at(1).at("content").get<std::string>() + "A";
  }
};

TEST(SummaryPromptTest, TextIsThatOfSummarizePy) {
  EXPECT_EQ(promptText(" \n\x1f He did n't say so, did n't he?\u00a0", ""), "He didn't say so, didn't he?");
  EXPECT_EQ(promptText("Short.", findEvaluationTask("summarize").suffix), "Short. TL;DR:");
  EXPECT_EQ(promptText("  ", ""), "");
  EXPECT_THAT(errorOf([] { findEvaluationTask("translate"); }),
              HasSubstr("summarize|summarize_long|code_completion|eval_context_ppl"));
}

TEST(SummaryPromptTest, TheBeginningOfALongTextIsLeftOutButNotTheSpecialTokens) {
  const ByteCodec codec;
  EXPECT_THAT(promptTokens("abc", {.max_tokens = 5}, codec), ElementsAre(1, 'a', 'b', 'c', 2));
  EXPECT_THAT(promptTokens("abc", {.max_tokens = 4}, codec), ElementsAre(1, 'b', 'c', 2));
  EXPECT_THAT(promptTokens("abc", {.add_special_tokens = false, .max_tokens = 2}, codec), ElementsAre('b', 'c'));
  EXPECT_EQ(promptTokens("abc", {.max_tokens = 1}, codec).size(), 1U);
}

TEST(SummaryPromptTest, AChatIsRenderedWithTheSystemMessage) {
  const ByteCodec codec;
  const auto tokens = promptTokens("x", {.as_chat = true, .add_special_tokens = false}, codec);
  EXPECT_EQ(codec.decode(tokens, true), "S" + std::string(kQwen2SystemMessage) + "UxA");
}

TEST(SummaryReportTest, HasTheLinesOfSummarizePy) {
  const Articles articles = {{"text", "a ship sank"}, {"text", "a ship"}};
  const Summaries summaries = {.list = {{0, "a ship sank", 7, 2.0}, {1, "a ship", 5, 4.0}}, .seconds = 2};
  SummarizeArgs args;
  args.eval_ppl = true;
  const SummaryReport report = reportOn(summaries, articles, args, "TensorRT-LLM", "TensorRT-LLM");
  EXPECT_EQ(report.text,
            "TensorRT-LLM (total latency: 2.0 sec)\nTensorRT-LLM (total output tokens: 12)\n"
            "TensorRT-LLM (tokens per second: 6.0)\nTensorRT-LLM beam 0 result\n"
            "  rouge1: 100.0\n  rouge2: 100.0\n  rougeL: 100.0\n  rougeLsum: 100.0\n  Per-token perplexity: 3.0\n");
  EXPECT_EQ(report.rouge1, 100);
  EXPECT_EQ(report.perplexity, 3);
  args.estimate_accuracy_std_dev = true;
  args.eval_ppl = false;
  const Summaries half = {.list = {{0, "a ship sank", 3, {}}, {1, "two boats", 2, {}}}, .seconds = 1};
  EXPECT_THAT(reportOn(half, articles, args, "Hugging Face", "HF").text,
              testing::AllOf(HasSubstr("Hugging Face (total latency: 1.0 sec)"), HasSubstr("HF beam 0 result"),
                             HasSubstr("  rouge1: 50.0 (50.0)\n"), testing::Not(HasSubstr("perplexity"))));
  EXPECT_EQ(pythonNumber(1e-7), "1e-07");
  EXPECT_EQ(pythonNumber(14), "14.0");
}

}  // namespace
}  // namespace chorus
