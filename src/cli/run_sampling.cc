#include "cli/run_sampling.h"

#include <limits>
#include <list>
#include <type_traits>

#include "base/error.h"
#include "cli/flag_values.h"

namespace chorus {
namespace {

std::list<executor::VecTokens> tokensOf(const std::vector<std::string>& words, const TextCodec& text) {
  std::list<executor::VecTokens> all;
  for (const std::string& word : words) all.push_back(text.encode(word, false));
  return all;
}

}  // namespace

void RunSampling::addTo(CLI::App& command) {
  const auto number = [&](const char* name, auto& value, auto least, auto most, const char* help) {
    using Value = std::remove_cvref_t<decltype(value)>;
    command.add_option(name, value, help)
        ->check(inRange(static_cast<Value>(least), static_cast<Value>(most)))
        ->capture_default_str();
  };
  constexpr int32_t kMost = 1 << 24;
  number("--num_beams", num_beams, 1, 1024, "Beams; 1 is served");
  number("--temperature", temperature, 0, 1e6, "Softmax temperature; 0: greedy");
  number("--top_k", top_k, 0, kMost, "1: greedy; 0: no limit");
  number("--top_p", top_p, 0, 1, "Nucleus; 0: off");
  number("--min_p", min_p, 0, 1, "Share of the best token's probability; 0: off");
  number("--random_seed", random_seed, 0, std::numeric_limits<uint64_t>::max(), "Seed of sampling");
  number("--repetition_penalty", repetition_penalty, 0, 1e6,
         "Divides the logits of tokens of prompt and answer; 1: off");
  number("--presence_penalty", presence_penalty, -1e6, 1e6,
         "Subtracted from the logits of tokens of prompt and answer");
  number("--frequency_penalty", frequency_penalty, -1e6, 1e6,
         "Subtracted from a token's logit once for each time that it occurred");
  number("--no_repeat_ngram_size", no_repeat_ngram_size, 0, kMost,
         "No sequence of this many tokens comes twice; 0: off");
  number("--min_tokens", min_tokens, 0, kMost, "No end token before this many tokens");
  number("--length_penalty", length_penalty, 0, 1e6, "Only for beam search: no effect with one beam");
  number("--beam_search_diversity_rate", beam_search_diversity_rate, 0, 1e6,
         "Only for beam search: no effect with one beam");
  number("--early_stopping", early_stopping, 0, kMost, "Only for beam search: no effect with one beam");
  command.add_option("--stop_words", stop_words, "Texts that end an answer");
  command.add_option("--bad_words", bad_words, "Texts that no answer completes");
}

void RunSampling::apply(executor::Request& request, const TextCodec* text) const {
  executor::SamplingConfig config(num_beams);
  config.setTopK(top_k);
  if (top_p != 0) config.setTopP(top_p);
  if (min_p != 0) config.setMinP(min_p);
  config.setTemperature(temperature);
  config.setSeed(random_seed);
  config.setRepetitionPenalty(repetition_penalty);
  config.setPresencePenalty(presence_penalty);
  config.setFrequencyPenalty(frequency_penalty);
  config.setNoRepeatNgramSize(no_repeat_ngram_size);
  config.setMinTokens(min_tokens);
  config.setLengthPenalty(length_penalty);
  config.setBeamSearchDiversityRate(beam_search_diversity_rate);
  config.setEarlyStopping(early_stopping);
  request.setSamplingConfig(config);
  if (stop_words.empty() && bad_words.empty()) return;
  if (text == nullptr) fail(ErrorCode::kInvalidArgument, "--stop_words and --bad_words need --tokenizer_dir");
  if (!stop_words.empty()) request.setStopWords(tokensOf(stop_words, *text));
  if (!bad_words.empty()) request.setBadWords(tokensOf(bad_words, *text));
}

}  // namespace chorus
