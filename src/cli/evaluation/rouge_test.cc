// ROUGE, its stemmer and its aggregation, compared with rouge-score, NLTK and NumPy (tests/oracle/rouge_goldens.py).
#include "cli/evaluation/rouge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/testing/error_of.h"
#include "cli/evaluation/numpy_random.h"
#include "cli/evaluation/porter_stemmer.h"
#include "cli/evaluation/rouge_summary.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using testing::HasSubstr;

constexpr double kRounding = 1e-11;  // the golden has 12 digits

const Json& golden() {
  static const Json kGolden = readJsonFile(test::sourceDir() / "tests/goldens/rouge.json");
  return kGolden;
}

std::vector<RougeScores> goldenScores() {
  std::vector<RougeScores> scores;
  for (const Json& row : golden().at("scores")) {
    scores.push_back(rougeScores(row.at("reference").get<std::string>(), row.at("prediction").get<std::string>(),
                                 row.at("stem").get<bool>()));
  }
  return scores;
}

TEST(PorterStemmerTest, StemsAreThoseOfNltk) {
  size_t changed = 0;
  for (const auto& [word, value] : golden().at("stems").items()) {
    const auto stem = value.get<std::string>();
    EXPECT_EQ(porterStem(word), stem) << word;
    changed += word != stem ? 1 : 0;
  }
  EXPECT_GT(changed, 300U);
}

TEST(PorterStemmerTest, StemsAreThoseOfPortersPaper) {
  for (const auto& [word, stem] :
       std::initializer_list<std::pair<const char*, const char*>>{{"caresses", "caress"},
                                                                  {"ponies", "poni"},
                                                                  {"feed", "feed"},
                                                                  {"agreed", "agre"},
                                                                  {"plastered", "plaster"},
                                                                  {"motoring", "motor"},
                                                                  {"sing", "sing"},
                                                                  {"hopping", "hop"},
                                                                  {"falling", "fall"},
                                                                  {"filing", "file"},
                                                                  {"relational", "relat"},
                                                                  {"vietnamization", "vietnam"},
                                                                  {"electriciti", "electr"},
                                                                  {"adoption", "adopt"},
                                                                  {"controlling", "control"},
                                                                  {"probate", "probat"}}) {
    EXPECT_EQ(porterStem(word), stem) << word;
  }
}

TEST(RougeTest, ScoresAreThoseOfRougeScore) {
  const std::vector<RougeScores> scores = goldenScores();
  ASSERT_EQ(scores.size(), 40U);
  size_t partial = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const Json& row = golden().at("scores")[i];
    for (size_t kind = 0; kind < kRougeNames.size(); ++kind) {
      SCOPED_TRACE(row.dump() + " " + std::string(kRougeNames[kind]));
      const Json& expected = row.at("scores")[kind];
      EXPECT_NEAR(scores[i][kind].precision, expected[0].get<double>(), kRounding);
      EXPECT_NEAR(scores[i][kind].recall, expected[1].get<double>(), kRounding);
      EXPECT_NEAR(scores[i][kind].f_measure, expected[2].get<double>(), kRounding);
      partial += scores[i][kind].f_measure > 0 && scores[i][kind].f_measure < 1 ? 1 : 0;
    }
  }
  EXPECT_GT(partial, 60U);
}

TEST(RougeTest, LinesThatNeedAnEnormousTableAreRefused) {
  std::string line;
  for (int i = 0; i < 9000; ++i) line += "a ";
  EXPECT_THAT(errorOf([&] { rougeScores(line, line, false); }), HasSubstr("9000 words against one of 9000"));
}

TEST(RougeTest, BytesThatAreNotUtf8SeparateWords) {
  EXPECT_DOUBLE_EQ(rougeScores("one two", "ONE\xfftwo\xc3", false)[1].f_measure, 1.0);
}

TEST(RougeSummaryTest, IsThatOfRougeScoresBootstrapWithSeed0) {
  const std::vector<RougeScores> scores = goldenScores();
  for (const Json& row : golden().at("aggregates")) {
    const auto count = row.at("count").get<size_t>();
    const RougeValues values = bootstrapRouge(std::span(scores).first(count));
    for (size_t kind = 0; kind < values.size(); ++kind) {
      EXPECT_NEAR(values[kind], row.at("values")[kind].get<double>(), kRounding) << count << " " << kRougeNames[kind];
    }
  }
  const RougeSpread spread = rougeSpread(scores);
  for (size_t kind = 0; kind < kRougeNames.size(); ++kind) {
    EXPECT_NEAR(spread.deviation[kind], golden().at("deviation")[kind].get<double>(), kRounding);
  }
}

TEST(NumpyRandomTest, PermutationsAreThoseOfNumpy) {
  for (const Json& row : golden().at("permutations")) {
    const auto order = row.at("order").get<std::vector<size_t>>();
    EXPECT_EQ(numpyPermutation(row.at("seed").get<uint64_t>(), order.size()), order);
  }
  EXPECT_TRUE(numpyPermutation(0, 0).empty());
}

}  // namespace
}  // namespace chorus
