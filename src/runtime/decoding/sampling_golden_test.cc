// Kept tokens and penalised logits equal those of the logits processors of Hugging Face transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "runtime/decoding/candidates.h"
#include "runtime/decoding/sampling_state.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using Ids = std::vector<int32_t>;

executor::SamplingConfig configOf(const Json& settings) {
  executor::SamplingConfig config;
  if (settings.contains("repetitionPenalty")) config.setRepetitionPenalty(settings["repetitionPenalty"].get<float>());
  if (settings.contains("noRepeatNgramSize")) config.setNoRepeatNgramSize(settings["noRepeatNgramSize"].get<int32_t>());
  if (settings.contains("minTokens")) config.setMinTokens(settings["minTokens"].get<int32_t>());
  config.setTemperature(settings.value("temperature", 1.0f));
  if (settings.contains("topK")) config.setTopK(settings["topK"].get<int32_t>());
  if (settings.contains("topP")) config.setTopP(settings["topP"].get<float>());
  if (settings.contains("minP")) config.setMinP(settings["minP"].get<float>());
  return config;
}

TEST(SamplingGolden, KeepsWhatTransformersKeeps) {
  const Json golden = readJsonFile(test::sourceDir().string() + "/tests/goldens/sampling/processors.json");
  ASSERT_GT(golden["cases"].size(), 100u);
  for (const Json& one : golden["cases"]) {
    const Json& settings = one["settings"];
    SCOPED_TRACE(settings.dump());
    executor::Request request(one["prompt"].get<Ids>(), 100, false, configOf(settings));
    if (settings.contains("badWords")) request.setBadWords(settings["badWords"].get<std::list<Ids>>());
    SamplingState state(request, settings.value("endIds", Ids()));
    state.prepare(one["prompt"].get<Ids>());
    for (const int32_t token : one["generated"].get<Ids>()) state.append(token);
    auto row = one["row"].get<std::vector<float>>();
    LogitEdits edits(row.size());
    edits.begin(row);
    state.rules().apply(static_cast<int32_t>(one["generated"].size()), edits);
    for (const auto& [token, value] : edits.all()) row[static_cast<size_t>(token)] = value;
    CandidateFilter filter(row.size());
    const auto kept = filter.keep(row, *std::max_element(row.begin(), row.end()), state.params());
    Ids ids;
    for (const auto& candidate : kept) ids.push_back(candidate.id);
    ASSERT_EQ(ids, one["kept"].get<Ids>());
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_NEAR(row[static_cast<size_t>(ids[i])], one["logits"][i].get<float>(), 2e-5);
    const auto likeliest = std::max_element(row.begin(), row.end()) - row.begin();
    EXPECT_EQ(likeliest, one["best"].get<int32_t>());
  }
}

}  // namespace
}  // namespace chorus
