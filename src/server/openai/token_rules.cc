#include "server/openai/token_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "base/random_bits.h"
#include "runtime/decoding/sampling_params.h"
#include "server/errors.h"
#include "server/openai/option_fields.h"

namespace chorus::server {
namespace {

constexpr size_t kMaxBadWordTokens = 4096;

// Bans a word at the beginning of a text and after a space, because its tokens differ there. The second form is banned
// only if the space is part of the word's first token; otherwise it would also ban other words that begin alike.
// Returns the number of tokens of both forms.
size_t addBadWord(std::string word, const TextCodec& text, WorkMeter& meter, std::list<executor::VecTokens>& words) {
  word.erase(0, word.find_first_not_of(' '));
  const executor::VecTokens first = text.encode(word, false, meter);
  const executor::VecTokens within = text.encode(" " + word, false, meter);
  if (!first.empty()) words.push_back(first);
  const bool own_token = !within.empty() && within.size() == first.size() && within.front() != first.front();
  if (own_token) words.push_back(within);
  return first.size() + (own_token ? within.size() : 0);
}

}  // namespace

TokenRules tokenRulesOf(const SamplingFields& fields, const ApiContext& context, const TextCodec& text,
                        WorkMeter& meter) {
  TokenRules rules;
  const int32_t vocab = context.engine.vocabSize();
  std::list<executor::VecTokens> words;
  size_t tokens = 0;
  for (const std::string& word : fields.bad_words) {
    tokens += addBadWord(word, text, meter, words);
    if (tokens > kMaxBadWordTokens) {
      throw ApiError::invalid(fmt::format("Invalid value for 'bad_words': the words have more than {} tokens together, "
                                          "including those that they have after a space.",
                                          kMaxBadWordTokens),
                              "bad_words", "invalid_value");
    }
  }
  const auto& of_model = context.defaults.bad_words;
  words.insert(words.end(), of_model.begin(), of_model.end());
  // A word with a token that is not in the vocabulary can never be generated.
  std::erase_if(words, [&](const executor::VecTokens& word) {
    return std::any_of(word.begin(), word.end(), [&](int32_t token) { return token >= vocab; });
  });
  if (!words.empty()) rules.bad_words = std::make_shared<const BadWordTables>(std::move(words));
  if (fields.logit_bias.empty()) return rules;
  std::map<int32_t, float> sums;  // "5" and "05" are one token
  for (const auto& [token, amount] : fields.logit_bias) {
    checkTokenIds("logit_bias", {&token, 1}, vocab);
    sums[token] += amount;
  }
  std::vector<executor::TokenBias> bias;
  bias.reserve(sums.size());
  for (const auto& [token, sum] : sums) bias.push_back({token, sum});
  rules.bias = std::make_shared<const std::vector<executor::TokenBias>>(std::move(bias));
  return rules;
}

executor::SamplingConfig samplingConfigOf(const SamplingFields& fields, const GenerationDefaults& defaults,
                                          size_t prompt_length, int32_t index) {
  executor::SamplingConfig config;
  const auto temperature = static_cast<float>(fields.temperature.value_or(defaults.temperature));
  const auto top_p = static_cast<float>(fields.top_p.value_or(defaults.top_p));
  const bool greedy = temperature == 0.0f || top_p == 0.0f;
  if (greedy) {
    config.setTopK(1);
  } else {
    config.setTemperature(temperature);
    config.setTopP(top_p);
    config.setTopK(fields.top_k.value_or(defaults.top_k));
    const double min_p = fields.min_p.value_or(defaults.min_p);
    if (min_p > 0) config.setMinP(static_cast<float>(min_p));
    config.setSeed(fields.seed ? *fields.seed + static_cast<uint64_t>(index) : randomBits());
  }
  // The engine subtracts penalties after it has divided by the temperature, so they are divided here.
  const double scale = greedy ? 1.0 : static_cast<double>(std::max(temperature, kLowestTemperature));
  config.setPresencePenalty(static_cast<float>(fields.presence_penalty.value_or(0.0) / scale));
  config.setFrequencyPenalty(static_cast<float>(fields.frequency_penalty.value_or(0.0) / scale));
  config.setPromptIgnoreLength(static_cast<int32_t>(prompt_length));
  config.setRepetitionPenalty(static_cast<float>(fields.repetition_penalty.value_or(defaults.repetition_penalty)));
  config.setNoRepeatNgramSize(fields.no_repeat_ngram_size.value_or(defaults.no_repeat_ngram_size));
  config.setMinTokens(fields.min_tokens.value_or(defaults.min_tokens));
  return config;
}

}  // namespace chorus::server
