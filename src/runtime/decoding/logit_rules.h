// Rules that change single logits of a row before a token is chosen: bias, penalties and bans. They touch only the
// tokens that they name, so their cost follows the request's history and not the size of the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/decoding/bad_words.h"
#include "runtime/decoding/ngram_index.h"
#include "runtime/decoding/sampling_params.h"

namespace chorus {

// Edited logits of one row. Sized at construction for the largest vocabulary.
class LogitEdits {
 public:
  struct Edit {
    int32_t token;
    float value;
  };

  explicit LogitEdits(size_t vocab) : index_(vocab, -1) { edits_.reserve(vocab); }

  // Discards all edits and starts a new row.
  void begin(std::span<const float> logits);
  // The token's logit, as edited so far. For a token outside the row it returns a dummy that nobody reads.
  float& at(int32_t token);
  void ban(int32_t token);

  std::span<const Edit> all() const { return edits_; }
  // [vocab]: position of the token's edit in all(), below 0 if it has none.
  std::span<const int32_t> index() const { return index_; }

 private:
  std::span<const float> logits_;
  std::vector<int32_t> index_;
  std::vector<Edit> edits_;
  float outside_ = 0;
};

// Counts how often each token of a sequence occurs. Takes up to 32 bytes for each different token.
class TokenCounts {
 public:
  struct Count {
    int32_t token;
    int32_t count;
  };

  // Marks the token as seen and adds to its count. If it throws std::bad_alloc, nothing has changed.
  void add(int32_t token, int32_t count);
  std::span<const Count> all() const { return counts_; }

 private:
  size_t slotOf(int32_t token) const;
  void grow();

  std::vector<Count> counts_;
  std::vector<int32_t> slots_;  // open addressing into counts_, -1: free; the size is a power of two
};

// The rules of one sequence. prepare() builds what they look up in the history (counts, n-grams, begun bad words) when
// the sequence starts, and forget() drops it on a pause, so that queued requests hold no such memory. Counts and
// n-grams take up to 100 bytes for each known token.
class LogitRules {
 public:
  // end_ids: banned before min_tokens are generated. The bad words are shared with the request.
  LogitRules(const SamplingParams& params, const executor::Request& request, std::span<const int32_t> end_ids);

  // Builds the history from all known tokens, prompt first. If an allocation throws, nothing has changed.
  void prepare(std::span<const int32_t> tokens);
  void forget() noexcept;
  // Precondition: prepared. Throws std::bad_alloc.
  void append(int32_t generated);
  // Whether apply() may change a logit for the token after `num_generated` generated ones.
  bool active(int32_t num_generated) const;
  // Applies the rules in the order that chorus/sampling_config.h states. Preconditions: prepared, and edits.begin() was
  // called with the row.
  void apply(int32_t num_generated, LogitEdits& edits) const;

 private:
  void penalise(LogitEdits& edits) const;
  // Built by prepare().
  struct History {
    TokenCounts counts;
    NgramIndex ngrams;
    WordAutomaton::State begun_words = WordAutomaton::kStart;
  };

  bool counts_tokens_;
  // presence_ and frequency_ are multiplied by the temperature, see penalise().
  float repetition_, presence_, frequency_;
  int32_t min_tokens_;
  int32_t ngram_size_;
  int32_t prompt_ignore_length_;
  size_t prompt_length_;
  std::shared_ptr<const std::vector<executor::TokenBias>> bias_;  // null: none
  std::vector<int32_t> end_ids_;
  std::shared_ptr<const BadWordTables> bad_words_;  // null: none
  History history_;
};

}  // namespace chorus
