// What changes single logits of a row before a token is chosen: bias, penalties and bans. All of it touches the
// tokens that it names and no others, so a row of 128 thousand logits costs what a request's history does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sampling/sampling_params.h"

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

// One request's rules. The counts belong to the tokens that were known when it was made and those appended
// since: pausing a request forgets none of them.
class LogitRules {
 public:
  // end_ids: banned below minTokens. tokens_at_most: prompt and generated.
  LogitRules(const SamplingParams& params, const executor::Request& request, std::span<const int32_t> end_ids,
             int32_t tokens_at_most);

  void append(int32_t generated);
  // Whether apply() may change anything for the token after num_generated.
  bool active(int32_t num_generated) const;
  // In the order that chorus/request.h states. tokens: all that are known, prompt first; edits.begin() was
  // called with the row.
  void apply(std::span<const int32_t> tokens, int32_t num_generated, LogitEdits& edits) const;

 private:
  struct Bias {
    int32_t token;
    float value;
  };
  void penalise(LogitEdits& edits) const;
  void banRepeats(std::span<const int32_t> tokens, LogitEdits& edits) const;
  void banWords(std::span<const int32_t> tokens, LogitEdits& edits) const;

  bool counts_tokens_;
  float repetition_, presence_, frequency_;  // the latter two times the temperature: see penalise()
  int32_t min_tokens_;
  int32_t ngram_size_;
  std::vector<Bias> bias_;
  std::vector<int32_t> end_ids_;
  std::vector<int32_t> bad_tokens_;
  std::vector<executor::VecTokens> bad_words_;  // of two tokens and more
  TokenCounts counts_;
};

}  // namespace chorus
