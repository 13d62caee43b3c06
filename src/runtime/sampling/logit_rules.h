// What changes single logits of a row before a token is chosen: bias, penalties and bans. All of it touches the
// tokens that it names and no others, so a row of 128 thousand logits costs what a request's history does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sampling/ngram_index.h"
#include "runtime/sampling/sampling_params.h"
#include "runtime/sampling/word_matches.h"

namespace chorus {

// The logits of a row that differ from what the model gave. Sized once for the largest vocabulary.
class LogitEdits {
 public:
  struct Edit {
    int32_t token;
    float value;
  };

  explicit LogitEdits(size_t vocab) : index_(vocab, -1) { edits_.reserve(vocab); }

  // Forgets all edits; later ones begin with the values of this row.
  void begin(std::span<const float> logits);
  // The token's logit, as edited so far; of a token that the row has none of, something that nobody reads.
  float& at(int32_t token);
  void ban(int32_t token);

  std::span<const Edit> all() const { return edits_; }
  // By token: below 0 where it has no edit.
  std::span<const int32_t> index() const { return index_; }

 private:
  std::span<const float> logits_;
  std::vector<int32_t> index_;
  std::vector<Edit> edits_;
  float outside_ = 0;
};

// How often each token of a sequence occurred. Sized for `capacity` tokens; counting allocates nothing.
class TokenCounts {
 public:
  struct Count {
    int32_t token;
    int32_t count;
  };

  TokenCounts() = default;
  explicit TokenCounts(size_t capacity);

  // Marks the token as seen and adds to its count.
  void add(int32_t token, int32_t count);
  std::span<const Count> all() const { return counts_; }

 private:
  std::vector<Count> counts_;
  std::vector<int32_t> slots_;  // open addressing into counts_, -1: free; a power of two
};

// One request's rules. What they look up in its history (counts, n-grams, begun words) is made by prepare() when the
// request starts and forgotten when it is paused, so that a long queue of requests does not hold it.
class LogitRules {
 public:
  // end_ids: banned below minTokens. tokens_at_most: prompt and generated.
  LogitRules(const SamplingParams& params, const executor::Request& request, std::span<const int32_t> end_ids,
             int32_t tokens_at_most);

  // Looks at all known tokens, prompt first. May throw for want of memory: then nothing has changed.
  void prepare(std::span<const int32_t> tokens);
  void forget() noexcept;
  // Of one that is prepared.
  void append(int32_t generated);
  // Whether apply() may change anything for the token after num_generated.
  bool active(int32_t num_generated) const;
  // In the order that chorus/request.h states, of one that is prepared; edits.begin() was called with the row.
  void apply(int32_t num_generated, LogitEdits& edits) const;

 private:
  struct Bias {
    int32_t token;
    float value;
  };
  void penalise(LogitEdits& edits) const;
  // What is made of the history.
  struct History {
    TokenCounts counts;
    NgramIndex ngrams;
    WordMatches begun_words;  // bad words without their last tokens
  };

  bool counts_tokens_;
  float repetition_, presence_, frequency_;  // the latter two times the temperature: see penalise()
  int32_t min_tokens_;
  int32_t ngram_size_;
  int32_t prompt_ignore_length_;
  size_t prompt_length_;
  size_t tokens_at_most_;
  std::vector<Bias> bias_;
  std::vector<int32_t> end_ids_;
  std::vector<int32_t> bad_tokens_;
  std::vector<executor::VecTokens> bad_words_;  // of two tokens and more
  History history_;
};

}  // namespace chorus
