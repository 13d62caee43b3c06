// A token mask: the set of tokens that may come next in a sequence. A grammar computes this set while the network runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace chorus {

// A set of tokens. Bit t % 64 of word t / 64 is 1 if token t is allowed; tokens beyond the words are not. Does not own
// the words.
class TokenMask {
 public:
  TokenMask() = default;  // allows every token
  // words: not empty.
  explicit TokenMask(std::span<const uint64_t> words) : words_(words) {}

  bool allowsAll() const { return words_.empty(); }
  bool allows(size_t token) const {
    return words_.empty() || (token / 64 < words_.size() && ((words_[token / 64] >> (token % 64)) & 1) != 0);
  }

 private:
  std::span<const uint64_t> words_;
};

// Computes the masks of one sequence beside the network: begin(), then the forward pass, then finish(), then sampling.
// Created on any thread; the step thread makes all calls. If a call throws, the request fails.
class TokenMaskSource {
 public:
  virtual ~TokenMaskSource() = default;
  // Called before the forward pass that yields the token after `tokens`, the prompt and the generated tokens so far. It
  // should return at once and leave the work to another thread. `tokens` stays valid until finish() returns or the
  // source is destroyed. If the step or the request fails, finish() is not called; the next call is then begin()
  // again, or the destructor.
  virtual void begin(std::span<const int32_t> tokens) = 0;
  // Waits until the mask of the last begin() is complete. The mask stays valid until the next begin().
  virtual TokenMask finish() = 0;
  // A source for a sequence that continues this one's.
  virtual std::unique_ptr<TokenMaskSource> fork() const = 0;
};

}  // namespace chorus
