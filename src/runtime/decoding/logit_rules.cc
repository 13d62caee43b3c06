#include "runtime/decoding/logit_rules.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/seeded_hash.h"
#include "runtime/decoding/numerics.h"

namespace chorus {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// Caps a logit at the largest float, so that logits stay comparable and subtractable for penalties and biases of any
// size.
float atMostLargest(float x) { return std::min(x, kLargest); }

// The product, clamped to finite floats.
float offset(float a, float b) { return std::clamp(a * b, -kLargest, kLargest); }

// Keyed, because clients choose the tokens of prompts.
size_t scatter(int32_t token) {
  static const SeededHash hash;
  return hash(static_cast<uint64_t>(token));
}

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

// The slot that has the token, or the free one where it belongs.
size_t TokenCounts::slotOf(int32_t token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = scatter(token) & mask;
  while (slots_[slot] >= 0 && counts_[static_cast<size_t>(slots_[slot])].token != token) slot = (slot + 1) & mask;
  return slot;
}

void TokenCounts::grow() {
  constexpr size_t kFirst = 16;
  std::vector<int32_t>(std::max(kFirst, 2 * slots_.size()), -1).swap(slots_);
  for (size_t i = 0; i < counts_.size(); ++i) slots_[slotOf(counts_[i].token)] = static_cast<int32_t>(i);
}

void TokenCounts::add(int32_t token, int32_t count) {
  if (2 * counts_.size() >= slots_.size()) grow();
  int32_t& known = slots_[slotOf(token)];
  if (known >= 0) {
    counts_[static_cast<size_t>(known)].count += count;
  } else {
    counts_.push_back({token, count});
    known = static_cast<int32_t>(counts_.size()) - 1;
  }
}

LogitRules::LogitRules(const SamplingParams& params, const executor::Request& request, std::span<const int32_t> end_ids)
    : counts_tokens_(params.countsTokens()),
      repetition_(params.repetition_penalty),
      presence_(offset(params.temperature, params.presence_penalty)),
      frequency_(offset(params.temperature, params.frequency_penalty)),
      min_tokens_(params.min_tokens),
      ngram_size_(params.no_repeat_ngram_size),
      prompt_ignore_length_(params.prompt_ignore_length),
      prompt_length_(request.getInputTokenIds().size()),
      bias_(request.getTokenBias()),
      end_ids_(end_ids.begin(), end_ids.end()) {
  if (const auto& bias = request.getEmbeddingBias(); bias && bias->getDataType() == executor::DataType::kFP32) {
    std::vector<executor::TokenBias> all;
    const auto* values = static_cast<const float*>(bias->getData());
    for (size_t i = 0; i < bias->getSize(); ++i) {
      if (values[i] != 0.0f) all.push_back({static_cast<int32_t>(i), values[i]});
    }
    if (bias_ != nullptr) all.insert(all.end(), bias_->begin(), bias_->end());
    bias_ = std::make_shared<const std::vector<executor::TokenBias>>(std::move(all));
  }
  if (const auto& words = request.getBadWordTables(); words != nullptr && !words->empty()) bad_words_ = words;
}

void LogitRules::prepare(std::span<const int32_t> tokens) {
  History made;
  if (counts_tokens_) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool counted = i >= prompt_length_ || i >= static_cast<size_t>(prompt_ignore_length_);
      if (counted || repetition_ != 1.0f) made.counts.add(tokens[i], counted ? 1 : 0);
    }
  }
  if (ngram_size_ > 0) {
    made.ngrams = NgramIndex(ngram_size_, tokens.size());
    for (const int32_t token : tokens) made.ngrams.append(token);
  }
  if (bad_words_ != nullptr) made.begun_words = bad_words_->begun().after(tokens);
  history_ = std::move(made);
}

void LogitRules::forget() noexcept { history_ = History(); }

void LogitRules::append(int32_t generated) {
  if (counts_tokens_) history_.counts.add(generated, 1);
  if (ngram_size_ > 0) history_.ngrams.append(generated);
  if (bad_words_ != nullptr) history_.begun_words = bad_words_->begun().next(history_.begun_words, generated);
}

bool LogitRules::active(int32_t num_generated) const {
  return counts_tokens_ || ngram_size_ > 0 || (bias_ != nullptr && !bias_->empty()) || bad_words_ != nullptr ||
         (num_generated < min_tokens_ && !end_ids_.empty());
}

void LogitRules::apply(int32_t num_generated, LogitEdits& edits) const {
  if (bias_ != nullptr) {
    for (const executor::TokenBias& bias : *bias_) {
      float& logit = edits.at(bias.token);
      logit = atMostLargest(logit + bias.value);
    }
  }
  if (counts_tokens_) penalise(edits);
  if (num_generated < min_tokens_) {
    for (const int32_t id : end_ids_) edits.ban(id);
  }
  if (ngram_size_ > 0) history_.ngrams.forEachRepeat([&](int32_t token) { edits.ban(token); });
  if (bad_words_ != nullptr) {
    bad_words_->forEachBanned(history_.begun_words, [&](int32_t token) { edits.ban(token); });
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
