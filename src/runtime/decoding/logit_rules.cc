#include "runtime/decoding/logit_rules.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

#include "runtime/decoding/numerics.h"

namespace chorus {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// Caps a logit at the largest float, so that logits stay comparable and subtractable for penalties and biases of any
// size.
float atMostLargest(float x) { return std::min(x, kLargest); }

// The product, clamped to finite floats.
float offset(float a, float b) { return std::clamp(a * b, -kLargest, kLargest); }

uint32_t scatter(int32_t token) { return static_cast<uint32_t>(token) * 0x9e3779b1u; }

}  // namespace

void LogitEdits::begin(std::span<const float> logits) {
  assert(logits.size() <= index_.size());
  for (const Edit& edit : edits_) index_[static_cast<size_t>(edit.token)] = -1;
  edits_.clear();
  logits_ = logits;
}

float& LogitEdits::at(int32_t token) {
  if (static_cast<size_t>(token) >= logits_.size()) return outside_;
  int32_t& index = index_[static_cast<size_t>(token)];
  if (index < 0) {
    index = static_cast<int32_t>(edits_.size());
    edits_.push_back({token, logits_[static_cast<size_t>(token)]});
  }
  return edits_[static_cast<size_t>(index)].value;
}

void LogitEdits::ban(int32_t token) { at(token) = -kInfinity; }

TokenCounts::TokenCounts(size_t capacity) : slots_(std::bit_ceil(2 * capacity + 1), -1) { counts_.reserve(capacity); }

void TokenCounts::add(int32_t token, int32_t count) {
  const size_t mask = slots_.size() - 1;
  for (size_t i = scatter(token) & mask;; i = (i + 1) & mask) {
    if (slots_[i] < 0) {
      slots_[i] = static_cast<int32_t>(counts_.size());
      counts_.push_back({token, count});
      return;
    }
    Count& known = counts_[static_cast<size_t>(slots_[i])];
    if (known.token == token) {
      known.count += count;
      return;
    }
  }
}

LogitRules::LogitRules(const SamplingParams& params, const executor::Request& request, std::span<const int32_t> end_ids,
                       int32_t tokens_at_most)
    : counts_tokens_(params.countsTokens()),
      repetition_(params.repetition_penalty),
      presence_(offset(params.temperature, params.presence_penalty)),
      frequency_(offset(params.temperature, params.frequency_penalty)),
      min_tokens_(params.min_tokens),
      ngram_size_(params.no_repeat_ngram_size),
      prompt_ignore_length_(params.prompt_ignore_length),
      prompt_length_(request.getInputTokenIds().size()),
      tokens_at_most_(std::max(prompt_length_, static_cast<size_t>(std::max(tokens_at_most, 0)))),
      end_ids_(end_ids.begin(), end_ids.end()) {
  if (const auto& bias = request.getEmbeddingBias(); bias && bias->getDataType() == executor::DataType::kFP32) {
    const auto* values = static_cast<const float*>(bias->getData());
    for (size_t i = 0; i < bias->getSize(); ++i) {
      if (values[i] != 0.0f) bias_.push_back({static_cast<int32_t>(i), values[i]});
    }
  }
  if (const auto& words = request.getBadWords()) {
    for (const auto& word : *words) {
      if (word.size() == 1)
        bad_tokens_.push_back(word.front());
      else
        bad_words_.push_back(word);
    }
  }
}

void LogitRules::prepare(std::span<const int32_t> tokens) {
  History made;
  if (counts_tokens_) {
    made.counts = TokenCounts(std::max(tokens.size(), tokens_at_most_));
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool counted = i >= prompt_length_ || i >= static_cast<size_t>(prompt_ignore_length_);
      if (counted || repetition_ != 1.0f) made.counts.add(tokens[i], counted ? 1 : 0);
    }
  }
  if (ngram_size_ > 0) {
    made.ngrams = NgramIndex(ngram_size_, std::max(tokens.size(), tokens_at_most_));
    for (const int32_t token : tokens) made.ngrams.append(token);
  }
  if (!bad_words_.empty()) {
    for (const auto& word : bad_words_) made.begun_words.add(std::span(word).first(word.size() - 1));
    for (const int32_t token : tokens) made.begun_words.append(token);
  }
  history_ = std::move(made);
}

void LogitRules::forget() noexcept { history_ = History(); }

void LogitRules::append(int32_t generated) {
  if (counts_tokens_) history_.counts.add(generated, 1);
  if (ngram_size_ > 0) history_.ngrams.append(generated);
  if (!bad_words_.empty()) history_.begun_words.append(generated);
}

bool LogitRules::active(int32_t num_generated) const {
  return counts_tokens_ || ngram_size_ > 0 || !bias_.empty() || !bad_tokens_.empty() || !bad_words_.empty() ||
         (num_generated < min_tokens_ && !end_ids_.empty());
}

void LogitRules::apply(int32_t num_generated, LogitEdits& edits) const {
  for (const Bias& bias : bias_) {
    float& logit = edits.at(bias.token);
    logit = atMostLargest(logit + bias.value);
  }
  if (counts_tokens_) penalise(edits);
  if (num_generated < min_tokens_) {
    for (const int32_t id : end_ids_) edits.ban(id);
  }
  if (ngram_size_ > 0) history_.ngrams.forEachRepeat([&](int32_t token) { edits.ban(token); });
  for (const int32_t token : bad_tokens_) edits.ban(token);
  for (size_t i = 0; i < bad_words_.size(); ++i) {
    if (history_.begun_words.ends(i)) edits.ban(bad_words_[i].back());
  }
}

// TensorRT-LLM divides by the temperature first and penalises then. Here logits are penalised before the division, with
// the same result: a factor acts equally on both sides of it, and what is subtracted is multiplied by the temperature.
void LogitRules::penalise(LogitEdits& edits) const {
  for (const auto& [token, count] : history_.counts.all()) {
    float& logit = edits.at(token);
    float x = logit < 0.0f ? logit * repetition_ : logit / repetition_;
    if (count > 0) x = x - presence_ - offset(frequency_, static_cast<float>(count));
    logit = atMostLargest(x);
  }
}

}  // namespace chorus
