// A sequence of a request, as the network sees it: tokens, position, KV blocks and adapters.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "chorus/types.h"
#include "runtime/adapter_cache/adapter_lease.h"
#include "runtime/decoding/token_mask.h"
#include "runtime/fair_queue.h"
#include "runtime/logits_post_processors.h"

namespace chorus {

class Request;

enum class SequenceState {
  kArrived,     // in no queue yet
  kForked,      // in no queue yet; continues another sequence of its request
  kWaiting,     // in the queue; has not run yet
  kContext,     // runs and computes its context
  kGeneration,  // runs and gets new tokens
  kPaused,      // in the queue again, without slot and blocks; or was forked and has not run
  kResuming,    // runs and computes its context after kPaused
};

// Created on the caller's thread; afterwards only the step thread uses it. Its address never changes.
class Sequence : public QueueEntry {
 public:
  // prompt: not empty. max_tokens: the most tokens that it will have, at least those of the prompt.
  Sequence(Request& request_in, int32_t index_in, QueuePosition at, std::vector<int32_t> prompt, int32_t max_tokens)
      : QueueEntry(at),
        request(request_in),
        index(index_in),
        tokens_(std::move(prompt)),
        prompt_length_(static_cast<int32_t>(tokens_.size())),
        max_tokens_(max_tokens) {
    start_cost = prompt_length_;
  }
  // Continues `parent`, which is unchanged.
  Sequence(const Sequence& parent, int32_t index_in)
      : QueueEntry(parent.position),
        request(parent.request),
        index(index_in),
        adapter(parent.adapter.unclaimed()),
        post_processing(parent.post_processing),
        tokens_(parent.tokens_),
        prompt_length_(parent.prompt_length_),
        max_tokens_(parent.max_tokens_),
        state_(SequenceState::kForked),
        masks(parent.masks != nullptr ? parent.masks->fork() : nullptr) {}

  Request& request;     // outlives the sequence
  const int32_t index;  // among the sequences of its request

  std::span<const int32_t> tokens() const { return tokens_; }  // prompt and generated
  int32_t numTokens() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t promptLength() const { return prompt_length_; }
  int32_t numGenerated() const { return numTokens() - prompt_length_; }
  int32_t maxTokens() const { return max_tokens_; }
  void append(int32_t token) { tokens_.push_back(token); }

  SequenceState state() const { return state_; }
  bool queued() const { return state_ != SequenceState::kArrived && state_ != SequenceState::kForked; }
  bool runs() const {
    return state_ == SequenceState::kContext || state_ == SequenceState::kGeneration ||
           state_ == SequenceState::kResuming;
  }
  bool generates() const { return state_ == SequenceState::kGeneration; }
  // True if the sequence neither ran before nor was forked from one that did.
  bool isNew() const { return state_ == SequenceState::kArrived || state_ == SequenceState::kWaiting; }
  // True if the sequence is paused, or computes its context again after a pause.
  bool wasPaused() const { return state_ == SequenceState::kPaused || state_ == SequenceState::kResuming; }

  // Call when the sequence enters the queue.
  void queue() noexcept {
    assert(!queued());
    state_ = state_ == SequenceState::kArrived ? SequenceState::kWaiting : SequenceState::kPaused;
  }
  // Call when the sequence starts or resumes: from step `step` on it runs in `slot` of the block tables. Its first
  // `cached_tokens` tokens are in the cache, and the slot holds `blocks` blocks.
  void start(int32_t slot, int32_t cached_tokens, int32_t blocks, uint64_t step) noexcept {
    assert(state_ == SequenceState::kWaiting || state_ == SequenceState::kPaused);
    state_ = state_ == SequenceState::kWaiting ? SequenceState::kContext : SequenceState::kResuming;
    slot_ = slot;
    num_cached_ = cached_tokens;
    blocks_held_ = blocks;
    started_at_ = step;
    steps_skipped = 0;
  }
  // Call when the context is complete: each further step yields new tokens.
  void generate() noexcept {
    assert(runs());
    state_ = SequenceState::kGeneration;
  }
  // Call when the sequence is paused: it has no slot and no blocks, nothing computed is kept, but its tokens are.
  void pause() noexcept {
    assert(runs());
    state_ = SequenceState::kPaused;
    slot_ = -1;
    num_cached_ = blocks_held_ = 0;
  }

  int32_t slot() const { return slot_; }               // -1 unless it runs
  int32_t numCached() const { return num_cached_; }    // leading tokens whose keys and values are in the cache
  int32_t blocksHeld() const { return blocks_held_; }  // in all KV groups together
  uint64_t startedAt() const { return started_at_; }   // number of the step of its latest start
  void computed(int32_t tokens) noexcept { num_cached_ += tokens; }
  void hold(int32_t blocks) noexcept { blocks_held_ = blocks; }

  AdapterLease adapter;
  int32_t times_bypassed = 0;    // see SchedulerLimits::max_bypasses
  uint64_t cache_namespace = 0;  // of its blocks in the prefix cache; 0: none assigned
  uint64_t ran_at = 0;           // number of the latest step in which it had rows
  int32_t steps_skipped = 0;     // steps since it started that skipped it (RequestView::skipped)
  uint64_t cache_scope = 0;      // eviction scope of its blocks; 0: none assigned

  // Changes the sequence's logits between the network and the sampler.
  PostProcessing post_processing;

 private:
  std::vector<int32_t> tokens_;
  int32_t prompt_length_;
  int32_t max_tokens_;
  SequenceState state_ = SequenceState::kArrived;
  int32_t slot_ = -1;
  int32_t num_cached_ = 0;
  int32_t blocks_held_ = 0;
  uint64_t started_at_ = 0;

 public:
  // Null: none. The last member, so that it is destroyed before the tokens, which it may still be reading.
  std::unique_ptr<TokenMaskSource> masks;
};

}  // namespace chorus
