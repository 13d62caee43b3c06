// Sampling through the executor's loop: answers follow each request's rules for any batch, chunks and pauses; log
// probabilities; error texts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "runtime/testing/core_fixture.h"
#include "runtime/testing/plain_sampling.h"

namespace chorus {
namespace {

using executor::CapacitySchedulerPolicy;
using executor::OutputConfig;
using executor::Request;
using executor::ResponseErrorCode;
using executor::SamplingConfig;
using executor::Tensor;
using ::testing::HasSubstr;

class ExecutorSamplingTest : public testing::CoreFixture {
 protected:
  ResponseErrorCode codeOf(const Request& r) {
    const auto all = finish(enqueue(r));
    if (all.empty() || !all.back().hasError()) {
      ADD_FAILURE() << "no error";
      return ResponseErrorCode::kINTERNAL;
    }
    return all.back().getErrorCode();
  }
};

// Reference answer: computed token by token from the definition of the rules.
executor::VecTokens plainAnswer(testing::PlainRequest plain, int count, int32_t vocab) {
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (int i = 0; i < count; ++i) {
    testing::fakeLogits(plain.tokens(), testing::hashAdapter(nullptr), logits);
    plain.generated.push_back(testing::plainToken(logits, plain));
    const auto& ends = plain.end_ids;
    if (std::find(ends.begin(), ends.end(), plain.generated.back()) != ends.end()) break;
  }
  return plain.generated;
}

TEST_F(ExecutorSamplingTest, RulesFollowTheKnownTokensAlone) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    auto& scheduler = options.scheduler;
    scheduler.policy = static_cast<CapacitySchedulerPolicy>(pick(0, 2));
    scheduler.kv.tokens_per_block = 1 << pick(0, 3);
    scheduler.max_batch_size = pick(1, 8);
    scheduler.max_num_tokens = pick(16, 60);
    // The pool holds little more than one request, so that requests are paused.
    scheduler.kv_blocks = (64 + scheduler.kv.tokens_per_block - 1) / scheduler.kv.tokens_per_block + pick(0, 8);
    options.sampler_threads = pick(1, 3);
    start();
    std::vector<std::pair<executor::IdType, executor::VecTokens>> asked;
    for (int i = 0; i < 12; ++i) {
      testing::PlainRequest plain;
      for (int t = pick(1, 30); t > 0; --t) plain.prompt.push_back(pick(0, kVocab - 1));
      const int count = pick(1, 30);
      SamplingConfig config;
      if (pick(0, 1) == 0) {
        config.setTemperature(static_cast<float>(pick(5, 20)) / 8);
        config.setTopP(0.875f);
        if (pick(0, 1) == 0) config.setTopPDecay(0.75f);
        if (pick(0, 1) == 0) config.setTopPMin(0.25f);
        config.setTopPResetIds(pick(0, kVocab - 1));
        config.setSeed(random());
      }
      if (pick(0, 1) == 0) config.setRepetitionPenalty(1.3125f);
      if (pick(0, 1) == 0) config.setPresencePenalty(0.71875f);
      if (pick(0, 1) == 0) config.setFrequencyPenalty(0.34375f);
      if (pick(0, 1) == 0) config.setPromptIgnoreLength(pick(0, 30));
      if (pick(0, 1) == 0) config.setNoRepeatNgramSize(pick(1, 3));
      if (pick(0, 1) == 0) config.setMinTokens(pick(1, 30));
      Request r = request(plain.prompt, count);
      r.setSamplingConfig(config);
      if (pick(0, 1) == 0) {
        plain.end_ids = {pick(0, kVocab - 1), pick(0, kVocab - 1), pick(0, kVocab - 1)};
        r.setEndId(plain.end_ids[0]);
        r.setExtraEndIds({plain.end_ids[1], plain.end_ids[2]});
      }
      if (pick(0, 1) == 0) {
        for (int w = 0; w < 10; ++w) plain.bad_words.push_back({pick(0, kVocab - 1)});
        r.setBadWords({plain.bad_words.begin(), plain.bad_words.end()});
      }
      if (pick(0, 1) == 0) {
        plain.bias.resize(kVocab);
        for (int b = 0; b < 10; ++b) plain.bias[static_cast<size_t>(pick(0, kVocab - 1))] = 2.5f;
        r.setEmbeddingBias(Tensor::copyOf(executor::DataType::kFP32, plain.bias.data(), {kVocab}));
      }
      plain.params = SamplingParams::from(config);
      asked.emplace_back(enqueue(r), plainAnswer(plain, count, kVocab));
    }
    for (const auto& [id, expected] : asked) ASSERT_EQ(resultOf(id).outputTokenIds.at(0), expected) << id;
  }
}

TEST_F(ExecutorSamplingTest, BadWordsMayBeginInThePrompt) {
  start();
  const executor::VecTokens prompt = {5, 6};
  const auto first = testing::expectedTokens(prompt, 1, kVocab)[0];
  Request r = request(prompt, 1);
  r.setBadWords({{5, 6, first}});
  EXPECT_NE(resultOf(enqueue(r)).outputTokenIds.at(0).at(0), first);
  r.setBadWords({{6, 5, first}});
  EXPECT_EQ(resultOf(enqueue(r)).outputTokenIds.at(0).at(0), first);
}

TEST_F(ExecutorSamplingTest, ScoredPromptsShareTheRowsOfLogits) {
  options.scheduler.max_scored_rows = 8;
  std::vector<size_t> rows;
  before_step = [&](int, const StepInput& input) { rows.push_back(input.logits_rows.size()); };
  start();
  OutputConfig output;
  output.excludeInputFromOutput = output.returnPromptLogProbs = true;
  std::vector<executor::IdType> ids;
  for (int i = 0; i < 3; ++i)
    ids.push_back(enqueue(Request(executor::VecTokens(20, i), 2, false, SamplingConfig(), output)));
  for (const auto id : ids) EXPECT_EQ(resultOf(id).promptLogProbs->size(), 19u);
  core->shutdown();
  EXPECT_LE(*std::max_element(rows.begin(), rows.end()), 8u + 3u) << "beside one for each sequence";
}

TEST_F(ExecutorSamplingTest, LogProbsOfPromptAndAlternatives) {
  options.scheduler.policy = CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 17;
  for (const bool streaming : {false, true}) {
    start();
    std::vector<executor::IdType> mates;
    for (int i = 0; i < 6; ++i) mates.push_back(enqueue(request({i, 9}, 40)));
    executor::VecTokens tokens(30, 4);  // two chunks
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % kVocab);
    OutputConfig output;
    output.excludeInputFromOutput = output.returnLogProbs = output.returnPromptLogProbs = true;
    output.topLogProbs = 3;
    Request asked(tokens, 20, streaming, SamplingConfig(), output);
    const auto responses = finish(enqueue(asked));
    std::vector<float> log_probs;
    std::vector<std::vector<executor::TokenLogProb>> top;
    const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    int prompts = 0;
    executor::VecTokens answer;
    for (const auto& response : responses) {
      const auto& result = response.getResult();
      if (result.promptLogProbs) {
        ++prompts;
        ASSERT_EQ(result.promptLogProbs->size(), 29u);
        ASSERT_EQ(result.promptTopLogProbs->size(), 29u);
        log_probs.insert(log_probs.begin(), result.promptLogProbs->begin(), result.promptLogProbs->end());
        top.insert(top.begin(), result.promptTopLogProbs->begin(), result.promptTopLogProbs->end());
      }
      add(answer, result.outputTokenIds.at(0));
      add(log_probs, result.logProbs->at(0));
      add(top, result.topLogProbs->at(0));
    }
    EXPECT_EQ(prompts, 1);
    EXPECT_EQ(answer, testing::expectedTokens(tokens, 20, kVocab));
    add(tokens, answer);
    ASSERT_EQ(log_probs.size(), tokens.size() - 1);
    ASSERT_EQ(top.size(), tokens.size() - 1);
    std::vector<float> row(kVocab);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      testing::fakeLogits({tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(i) + 1},
                          testing::hashAdapter(nullptr), row);
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x));
      const auto log_prob = [&](int32_t token) {
        return static_cast<double>(row[static_cast<size_t>(token)]) - std::log(sum);
      };
      EXPECT_NEAR(log_probs[i], log_prob(tokens[i + 1]), 1e-5) << i;
      ASSERT_EQ(top[i].size(), 3u);
      EXPECT_EQ(top[i][0].token, std::max_element(row.begin(), row.end()) - row.begin());
      for (const auto& one : top[i]) EXPECT_NEAR(one.logProb, log_prob(one.token), 1e-5);
      EXPECT_GE(top[i][1].logProb, top[i][2].logProb);
    }
    for (const auto id : mates) resultOf(id);
  }
}

TEST_F(ExecutorSamplingTest, ErrorsHaveCodes) {
  using Code = ResponseErrorCode;
  before_step = [](int, const StepInput& input) {
    if (input.tokens.front() == 40) throw std::runtime_error("the network broke");
  };
  after_row = [](const std::vector<int32_t>& history, std::span<float> logits) {
    if (history.front() == 41) logits[3] = std::nanf("");
  };
  const LoadAdapter good = load;
  load = [good](const AdapterSource& source) {
    if (source.directory == "broken") fail(ErrorCode::kCorrupt, "adapter_model.safetensors is truncated");
    if (source.directory == "gone") fail(ErrorCode::kNotFound, "adapter_model.safetensors is not there");
    return good(source);
  };
  start();
  core->registerAdapter(1, testing::fakeSource("broken"));
  core->registerAdapter(2, testing::fakeSource("gone"));
  core->registerAdapter(3, testing::fakeSource("large-1000"));
  const auto with = [](executor::IdType task) {
    Request r = request({1}, 2);
    r.setLoraConfig(executor::LoraConfig(task));
    return r;
  };
  EXPECT_EQ(codeOf(with(1)), Code::kCORRUPT);
  EXPECT_EQ(codeOf(with(2)), Code::kNOT_FOUND);
  EXPECT_EQ(codeOf(with(3)), Code::kTOO_LARGE);
  EXPECT_EQ(codeOf(with(4)), Code::kNOT_FOUND);
  EXPECT_EQ(codeOf(request({40}, 1)), Code::kINTERNAL);
  EXPECT_EQ(codeOf(request({41}, 1)), Code::kINTERNAL);
  EXPECT_EQ(codeOf(request({99}, 1)), Code::kINVALID_ARGUMENT);
  Request positions = request({1}, 1);
  positions.setPositionIds({0});
  EXPECT_EQ(codeOf(positions), Code::kUNSUPPORTED);
  Request banned = request({1}, 1);
  banned.setEmbeddingBias(Tensor::copyOf(
      executor::DataType::kFP32, std::vector<float>(kVocab, -std::numeric_limits<float>::infinity()).data(), {kVocab}));
  EXPECT_EQ(codeOf(banned), Code::kINVALID_ARGUMENT);
}

TEST_F(ExecutorSamplingTest, WordsAndBiasAreChecked) {
  start();
  const auto refused = [&](auto change) {
    Request r = request({1}, 1);
    change(r);
    return errorOf(enqueue(r));
  };
  EXPECT_EQ(refused([](Request& r) { r.setBadWords({{1, 50}}); }),
            "Token 50 at position 1 of a bad word is not within the vocabulary [0, 50)");
  EXPECT_EQ(refused([](Request& r) { r.setBadWords({{-1}}); }),
            "Token -1 at position 0 of a bad word is not within the vocabulary [0, 50)");
  EXPECT_EQ(refused([](Request& r) { r.setBadWords({{1}, {}}); }), "badWords holds an empty word");
  EXPECT_EQ(refused([](Request& r) { r.setStopWords({{}}); }), "stopWords holds an empty word");
  EXPECT_EQ(refused([](Request& r) { r.setEmbeddingBias(Tensor::cpu(executor::DataType::kFP32, {1, 50})); }),
            "embeddingBias must have the shape [50], the vocabulary's size");
  EXPECT_EQ(refused([](Request& r) { r.setEmbeddingBias(Tensor::cpu(executor::DataType::kFP16, {50})); }),
            "Embedding bias data type must be same as model logits type.");
  std::vector<float> bias(kVocab, 0.0f);
  bias[7] = std::nanf("");
  EXPECT_THAT(refused([&](Request& r) {
                r.setEmbeddingBias(Tensor::copyOf(executor::DataType::kFP32, bias.data(), {kVocab}));
              }),
              HasSubstr("embeddingBias[7]"));
  EXPECT_EQ(refused([](Request& r) {
              OutputConfig output;
              output.topLogProbs = 2;
              r.setOutputConfig(output);
            }),
            "topLogProbs needs returnLogProbs");
}

// A callback whose copy throws while *armed, so that enqueue() fails after it has counted the request.
struct ThrowsWhenCopied {
  bool* armed;
  explicit ThrowsWhenCopied(bool* a) : armed(a) {}
  ThrowsWhenCopied(const ThrowsWhenCopied& other) : armed(other.armed) {
    if (*armed) throw std::bad_alloc();
  }
  void operator()(const executor::Response&) const {}
};

TEST_F(ExecutorSamplingTest, ARequestThatCannotBeMadeLeavesItsPlaceInTheQueue) {
  options.max_queue_size = 1;
  start();
  bool armed = false;
  const executor::Executor::ResponseCallback callback = ThrowsWhenCopied(&armed);
  armed = true;
  const Request r = request({1}, 1);
  EXPECT_THROW(core->enqueue({&r, 1}, callback), std::bad_alloc);
  EXPECT_TRUE(core->acceptsRequests());
  EXPECT_EQ(resultOf(enqueue(r)).outputTokenIds.at(0), testing::expectedTokens({1}, 1, kVocab));
}

}  // namespace
}  // namespace chorus
