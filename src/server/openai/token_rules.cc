#include "server/openai/token_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "runtime/sampling/sampling_params.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

uint64_t randomSeed() {
  thread_local std::mt19937_64 rng(std::random_device{}());
  return rng();
}

// Bans a word at the beginning of a text and after a space, because its tokens differ there. The second form is banned
// only if the space is part of the word's first token; otherwise it would also ban other words that begin alike.
void addBadWord(std::string word, const TextCodec& text, WorkMeter& meter, std::list<executor::VecTokens>& words) {
  word.erase(0, word.find_first_not_of(' '));
  const executor::VecTokens first = text.encode(word, false, meter);
  const executor::VecTokens within = text.encode(" " + word, false, meter);
  if (!first.empty()) words.push_back(first);
  const bool ownToken = !within.empty() && within.size() == first.size() && within.front() != first.front();
  if (ownToken) words.push_back(within);
}

}  // namespace

TokenRules tokenRulesOf(const SamplingFields& fields, const ApiContext& context, const TextCodec& text,
                        WorkMeter& meter) {
  TokenRules rules;
  const int32_t vocab = context.engine.vocabSize();
  for (const std::string& word : fields.badWords) addBadWord(word, text, meter, rules.badWords);
  const auto& ofModel = context.defaults.badWords;
  rules.badWords.insert(rules.badWords.end(), ofModel.begin(), ofModel.end());
  // A word with a token that is not in the vocabulary can never be generated.
  std::erase_if(rules.badWords, [&](const executor::VecTokens& word) {
    return std::any_of(word.begin(), word.end(), [&](int32_t token) { return token >= vocab; });
  });
  if (fields.logitBias.empty()) return rules;
  auto bias = executor::Tensor::cpu(executor::DataType::kFP32, {vocab});
  auto* values = static_cast<float*>(bias.getData());
  for (const auto& [token, amount] : fields.logitBias) {
    if (token >= vocab) {
      throw ApiError::invalid(fmt::format("Invalid value for 'logit_bias': token id {} is not below the vocabulary's "
                                          "size of {}.",
                                          token, vocab),
                              "logit_bias", "invalid_value");
    }
    values[token] += amount;
  }
  rules.embeddingBias = std::move(bias);
  return rules;
}

executor::SamplingConfig samplingConfigOf(const SamplingFields& fields, const GenerationDefaults& defaults,
                                          size_t promptLength, int32_t index) {
  executor::SamplingConfig config;
  const auto temperature = static_cast<float>(fields.temperature.value_or(defaults.temperature));
  const auto topP = static_cast<float>(fields.topP.value_or(defaults.topP));
  const bool greedy = temperature == 0.0f || topP == 0.0f;
  if (greedy) {
    config.setTopK(1);
  } else {
    config.setTemperature(temperature);
    config.setTopP(topP);
    config.setTopK(fields.topK.value_or(defaults.topK));
    const double minP = fields.minP.value_or(defaults.minP);
    if (minP > 0) config.setMinP(static_cast<float>(minP));
    config.setSeed(fields.seed ? *fields.seed + static_cast<uint64_t>(index) : randomSeed());
  }
  // The engine subtracts penalties after it has divided by the temperature, so they are divided here.
  const double scale = greedy ? 1.0 : static_cast<double>(std::max(temperature, kLowestTemperature));
  config.setPresencePenalty(static_cast<float>(fields.presencePenalty.value_or(0.0) / scale));
  config.setFrequencyPenalty(static_cast<float>(fields.frequencyPenalty.value_or(0.0) / scale));
  config.setPromptIgnoreLength(static_cast<int32_t>(promptLength));
  config.setRepetitionPenalty(static_cast<float>(fields.repetitionPenalty.value_or(defaults.repetitionPenalty)));
  config.setNoRepeatNgramSize(fields.noRepeatNgramSize.value_or(defaults.noRepeatNgramSize));
  config.setMinTokens(fields.minTokens.value_or(defaults.minTokens));
  return config;
}

}  // namespace chorus::server
