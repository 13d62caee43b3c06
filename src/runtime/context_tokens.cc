#include "runtime/context_tokens.h"

#include <algorithm>
#include <optional>

namespace chorus {
namespace {

bool mayChunk(const SchedulerLimits& limits, const RequestView& r) { return limits.chunked_context || r.was_paused; }

// The end of the last whole block before the rows that have logits.
int32_t scoredFrom(const SchedulerLimits& limits, const RequestView& r) {
  return r.scored_from / limits.kv.tokens_per_block * limits.kv.tokens_per_block;
}

// The end of r's context, or of its part that has no logits if that comes first.
int32_t chunkLimit(const SchedulerLimits& limits, const RequestView& r) {
  const int32_t scored_from = scoredFrom(limits, r);
  return mayChunk(limits, r) && r.num_cached < scored_from ? std::min(r.num_tokens, scored_from) : r.num_tokens;
}

// The largest chunk of r that fits into `room` tokens: all remaining tokens, or up to the end of a block, or
// RequestView::max_chunk tokens if those are fewer; 0: none.
int32_t largestChunk(const SchedulerLimits& limits, const RequestView& r, int32_t room) {
  const int32_t remaining = chunkLimit(limits, r) - r.num_cached;
  if (!mayChunk(limits, r)) return remaining <= room ? remaining : 0;
  const int32_t most = std::min(room, r.max_chunk);
  if (remaining <= most) return remaining;
  const int32_t end = (r.num_cached + most) / limits.kv.tokens_per_block * limits.kv.tokens_per_block;
  if (end > r.num_cached) return end - r.num_cached;
  return r.max_chunk <= room ? r.max_chunk : 0;
}

class Sharing {
 public:
  Sharing(const SchedulerLimits& limits, const StepRoom& room, std::span<const RequestView> requests, int32_t tokens,
          std::span<PlannedSequence> contexts, std::vector<ContextLane>& lanes)
      : limits_(limits),
        turn_(room.turn),
        requests_(requests),
        contexts_(contexts),
        lanes_(lanes),
        tokens_left_(tokens),
        scored_left_(std::min(limits.max_scored_rows, std::max(room.scored_tokens, limits.kv.tokens_per_block))) {}

  void run() {
    if (ofSeveralClients()) {
      shareByClients();
    } else if (limits_.chunking_policy == executor::ContextChunkingPolicy::kEQUAL_PROGRESS) {
      shareEqually();
    } else {
      giveInOrder();
    }
  }

 private:
  const RequestView& requestOf(const PlannedSequence& sequence) const {
    return requests_[static_cast<size_t>(sequence.request_index)];
  }
  int32_t nextPieceOf(const PlannedSequence& sequence) const {
    return nextPiece(limits_, requestOf(sequence), sequence.num_tokens);
  }
  bool isScored(const RequestView& r) const { return mayChunk(limits_, r) && r.num_cached >= scoredFrom(limits_, r); }
  // Whether r lacks logits rows for its next `tokens` tokens.
  bool lacksScoredRows(const RequestView& r, int32_t tokens) const { return isScored(r) && tokens > scored_left_; }

  void take(PlannedSequence& sequence, int32_t tokens) {
    sequence.num_tokens += tokens;
    tokens_left_ -= tokens;
    if (isScored(requestOf(sequence))) scored_left_ -= tokens;
  }
  bool give(PlannedSequence& sequence, int32_t tokens) {
    if (tokens > tokens_left_ || lacksScoredRows(requestOf(sequence), tokens)) return false;
    take(sequence, tokens);
    return true;
  }

  void giveInOrder() {
    for (PlannedSequence& sequence : contexts_) {
      const RequestView& r = requestOf(sequence);
      const bool few_rows = lacksScoredRows(r, tokens_left_);
      const int32_t chunk = largestChunk(limits_, r, few_rows ? scored_left_ : tokens_left_);
      if (chunk == 0 && !few_rows) return;
      take(sequence, chunk);
    }
  }

  // Round robin over contexts, one piece per turn.
  void shareEqually() {
    for (bool first_turn = true, progress = true; progress; first_turn = false) {
      progress = false;
      for (PlannedSequence& sequence : contexts_) {
        const int32_t piece = nextPieceOf(sequence);
        if (piece == 0 || (!first_turn && sequence.num_tokens == 0)) continue;
        const bool given = give(sequence, piece);
        if (!given && first_turn && piece > tokens_left_) break;
        progress |= given;
      }
    }
  }

  bool ofSeveralClients() const {
    return std::any_of(contexts_.begin(), contexts_.end(), [&](const PlannedSequence& sequence) {
      return requestOf(sequence).client != requestOf(contexts_.front()).client;
    });
  }

  // Round robin over clients, one piece per turn. The first client rotates from step to step, because a step may have
  // room for one piece only.
  void shareByClients() {
    lanes_.clear();
    for (const PlannedSequence& sequence : contexts_) {
      const std::optional<uint64_t> client = requestOf(sequence).client;
      const bool known =
          std::any_of(lanes_.begin(), lanes_.end(), [&](const ContextLane& lane) { return lane.client == client; });
      if (!known) lanes_.push_back({client, false});
    }
    std::rotate(lanes_.begin(), lanes_.begin() + static_cast<ptrdiff_t>(turn_ % lanes_.size()), lanes_.end());
    for (size_t open = lanes_.size(); open > 0;) {
      for (ContextLane& lane : lanes_) {
        if (lane.closed) continue;
        PlannedSequence* next = nextOf(lane.client);
        if (next != nullptr && give(*next, nextPieceOf(*next))) continue;
        lane.closed = true;
        --open;
      }
    }
  }

  // The client's context that gets the next piece; null if none can get one.
  PlannedSequence* nextOf(std::optional<uint64_t> client) const {
    PlannedSequence* next = nullptr;
    for (PlannedSequence& sequence : contexts_) {
      const RequestView& r = requestOf(sequence);
      const int32_t piece = nextPieceOf(sequence);
      if (r.client != client || piece == 0 || lacksScoredRows(r, piece)) continue;
      if (limits_.chunking_policy != executor::ContextChunkingPolicy::kEQUAL_PROGRESS) return &sequence;
      if (next == nullptr || sequence.num_tokens < next->num_tokens) next = &sequence;
    }
    return next;
  }

  const SchedulerLimits& limits_;
  const uint64_t turn_;
  const std::span<const RequestView> requests_;
  const std::span<PlannedSequence> contexts_;
  std::vector<ContextLane>& lanes_;
  int32_t tokens_left_;
  int32_t scored_left_;
};

}  // namespace

int32_t nextPiece(const SchedulerLimits& limits, const RequestView& request, int32_t given) {
  const int32_t done = request.num_cached + given;
  if (!mayChunk(limits, request)) return request.num_tokens - done;
  const int32_t block_end = (done / limits.kv.tokens_per_block + 1) * limits.kv.tokens_per_block;
  const int32_t piece = std::min(chunkLimit(limits, request), block_end) - done;
  if (given == 0) return std::min(piece, request.max_chunk);
  return given + piece <= request.max_chunk ? piece : 0;
}

void shareContextTokens(const SchedulerLimits& limits, const StepRoom& room, std::span<const RequestView> requests,
                        int32_t tokens, std::span<PlannedSequence> contexts, std::vector<ContextLane>& lanes) {
  Sharing(limits, room, requests, tokens, contexts, lanes).run();
}

}  // namespace chorus
