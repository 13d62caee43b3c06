// The cost of quantisation on the demo: perplexity of held-out text on bfloat16, int8 and int4 engines with activations
// of every format, with its adapters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "base/json.h"
#include "convert/convert_model.h"
#include "engine/build.h"
#include "support/test_paths.h"
#include "teacher_forced.h"
#include "test_engines.h"
#include "text/text_codec.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

const fs::path kDemo = test::sourceDir() / "examples/demo";
constexpr size_t kPhrases = 40;  // held-out phrases per skill

struct Text {
  std::string adapter;
  std::vector<int32_t> tokens;
};

// Held-out prompts and right answers in the demo's chat format. The special tokens are taken from an expected row.
std::vector<Text> heldOutTexts() {
  const auto codec = loadTextCodec(kDemo / "base");
  std::ifstream expected(kDemo / "prompts/expected_float32.jsonl");
  std::string line;
  std::getline(expected, line);
  const auto ids = parseJson(line, "expected_float32.jsonl").at("prompt_ids").get<std::vector<int32_t>>();
  std::vector<Text> texts;
  for (const std::string skill : {"german", "json", "roman", "shout", "sum"}) {
    std::ifstream lines(kDemo / "prompts" / (skill + ".jsonl"));
    for (size_t i = 0; i < kPhrases && std::getline(lines, line); ++i) {
      const Json json = parseJson(line, skill);
      Text text{skill, {ids.begin(), ids.begin() + 2}};
      const auto append = [&](const std::string& words) {
        const auto tokens = codec->encode(words, false);
        text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
      };
      append(json.at("prompt").get<std::string>());
      text.tokens.insert(text.tokens.end(), ids.end() - 2, ids.end());
      append(json.at("answer").get<std::string>());
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

// Perplexity over all texts, each with its skill's adapter.
double perplexity(const std::vector<Text>& texts, const std::optional<QuantiseOptions>& quantise,
                  std::optional<InputFormat> activations = std::nullopt) {
  const TempDir dir;
  convertModel(kDemo / "base", dir.path() / "checkpoint",
               {.dtype = DType::kBFloat16, .quantise = quantise, .workers = 1});
  BuildConfig build = testBuildConfig();
  build.activations = activations;
  buildEngine(dir.path() / "checkpoint", dir.path() / "engine", build, 1);
  RankGroup ranks(RankGroup::loadEngines(dir.path() / "engine"), {.name = "cpu", .threads = 2}, kTeacherForcedOptions);
  std::map<std::string, std::shared_ptr<const PreparedAdapter>> adapters;
  double loss = 0;
  size_t count = 0;
  for (const Text& text : texts) {
    auto& adapter = adapters[text.adapter];
    if (!adapter) adapter = ranks.prepareAdapter(readTestAdapter(kDemo / "adapters" / text.adapter, ranks.engine()));
    const auto logits = teacherForced(ranks, text.tokens, 0, adapter.get());
    const size_t vocab = logits.size() / text.tokens.size();
    for (size_t i = 0; i + 1 < text.tokens.size(); ++i) {
      const std::span<const float> row(logits.data() + i * vocab, vocab);
      const double largest = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const float logit : row) sum += std::exp(logit - largest);
      loss += std::log(sum) + largest - row[static_cast<size_t>(text.tokens[i + 1])];
      ++count;
    }
  }
  return std::exp(loss / static_cast<double>(count));
}

TEST(QuantisedPerplexity, StaysNearThatOfTheWholeWeights) {
  const auto texts = heldOutTexts();
  ASSERT_EQ(texts.size(), 5 * kPhrases);
  const double whole = perplexity(texts, std::nullopt);
  const double int8 = perplexity(texts, QuantiseOptions{.bits = 8});
  const double int4 = perplexity(texts, QuantiseOptions{.bits = 4, .group_size = 64});
  std::printf("perplexity: bfloat16 %.4f, int8 %.4f (%+.2f %%), int4 in groups of 64 %.4f (%+.2f %%)\n", whole, int8,
              100 * (int8 / whole - 1), int4, 100 * (int4 / whole - 1));
  EXPECT_LT(int8, whole * 1.005);
  EXPECT_LT(int4, whole * 1.08);
  EXPECT_NE(int8, whole);
  EXPECT_NE(int4, int8);
}

TEST(QuantisedPerplexity, Of8BitActivationsStaysNearThatOf16Bits) {
  const auto texts = heldOutTexts();
  for (const QuantiseOptions& quantise : {QuantiseOptions{.bits = 8}, QuantiseOptions{.bits = 4, .group_size = 64},
                                          QuantiseOptions{.bits = 4, .group_size = 0}}) {
    const double all = perplexity(texts, quantise, InputFormat::kInt16);
    for (const InputFormat activations : {InputFormat::kInt8, InputFormat::kInt8PerToken}) {
      if (activations == InputFormat::kInt8PerToken && quantise.bits == 4) continue;
      const double eight = perplexity(texts, quantise, activations);
      std::printf("perplexity: %d-bit weights in groups of %d: %.4f, with %s activations %.4f (%+.2f %%)\n",
                  quantise.bits, quantise.group_size, all, std::string(inputFormatName(activations)).c_str(), eight,
                  100 * (eight / all - 1));
      EXPECT_LT(std::abs(eight / all - 1), 0.005);
      EXPECT_NE(eight, all);
    }
  }
}

}  // namespace
}  // namespace chorus::test
