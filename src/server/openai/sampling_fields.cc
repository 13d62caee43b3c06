#include "server/openai/sampling_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/exact_json.h"

namespace chorus::server {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxBadWords = 128;
constexpr size_t kMaxBadWordBytes = 1024;
constexpr double kMaxRepetitionPenalty = 100;
constexpr size_t kMaxSaltBytes = 1024;

std::optional<int32_t> int32Of(const FieldReader& fields, std::string_view name, int64_t low) {
  const auto value = fields.integer(name, low, kMaxInt32);
  if (!value) return std::nullopt;
  return static_cast<int32_t>(*value);
}

std::vector<std::pair<int32_t, float>> parseLogitBias(const FieldReader& fields) {
  std::vector<std::pair<int32_t, float>> bias;
  const OrderedJson* object = fields.find("logit_bias");
  if (object == nullptr) return bias;
  if (!object->is_object()) fields.refuseType("logit_bias", "an object of token ids and biases");
  for (const auto& [key, value] : object->items()) {
    int32_t token = -1;
    const char* end = key.data() + key.size();
    const auto [stopped, error] = std::from_chars(key.data(), end, token);
    if (error != std::errc() || stopped != end || token < 0) {
      fields.refuse("logit_bias", "its keys must be token ids: integers of 0 or more");
    }
    if (!value.is_number() && !wideIntegerDigits(value)) {
      fields.refuseType("logit_bias", "an object of token ids and biases");
    }
    const double amount = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(amount >= -100 && amount <= 100)) fields.refuse("logit_bias", "its values must be numbers from -100 to 100");
    bias.emplace_back(token, static_cast<float>(amount));
  }
  return bias;
}

std::vector<std::string> parseBadWords(const FieldReader& fields) {
  std::vector<std::string> words;
  const OrderedJson* array = fields.find("bad_words");
  if (array == nullptr) return words;
  if (!array->is_array()) fields.refuseType("bad_words", "an array of strings");
  if (array->size() > kMaxBadWords) fields.refuse("bad_words", fmt::format("at most {} words", kMaxBadWords));
  for (const OrderedJson& one : *array) {
    if (!one.is_string()) fields.refuseType("bad_words", "an array of strings");
    words.push_back(one.get<std::string>());
    // A word of spaces only would have no tokens, because leading spaces are stripped.
    if (words.back().find_first_not_of(' ') == std::string::npos)
      fields.refuse("bad_words", "a word must not be empty");
    if (words.back().size() > kMaxBadWordBytes) {
      fields.refuse("bad_words", fmt::format("a word may have at most {} bytes", kMaxBadWordBytes));
    }
  }
  return words;
}

}  // namespace

SamplingFields parseSamplingFields(const FieldReader& fields) {
  SamplingFields sampling;
  sampling.temperature = fields.number("temperature", 0, 2);
  sampling.top_p = fields.number("top_p", 0, 1);
  sampling.min_p = fields.number("min_p", 0, 1);
  sampling.top_k = int32Of(fields, "top_k", -1);
  if (sampling.top_k == -1) sampling.top_k = 0;
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) sampling.seed = static_cast<uint64_t>(*seed);
  sampling.presence_penalty = fields.number("presence_penalty", -2, 2);
  sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  sampling.repetition_penalty = fields.number("repetition_penalty", 0, kMaxRepetitionPenalty);
  if (sampling.repetition_penalty && static_cast<float>(*sampling.repetition_penalty) <= 0) {
    fields.refuse("repetition_penalty", "it must be greater than 0");
  }
  sampling.no_repeat_ngram_size = int32Of(fields, "no_repeat_ngram_size", 0);
  sampling.min_tokens = int32Of(fields, "min_tokens", 0);
  sampling.logit_bias = parseLogitBias(fields);
  sampling.bad_words = parseBadWords(fields);
  sampling.cache_salt = fields.string("cache_salt");
  if (sampling.cache_salt && sampling.cache_salt->empty()) fields.refuse("cache_salt", "it must not be empty");
  if (sampling.cache_salt && sampling.cache_salt->size() > kMaxSaltBytes) {
    fields.refuse("cache_salt", fmt::format("it may have at most {} bytes", kMaxSaltBytes));
  }
  return sampling;
}

}  // namespace chorus::server
