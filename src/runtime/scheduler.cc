#include "runtime/scheduler.h"

#include <algorithm>
#include <cassert>

namespace chorus {
namespace {

using executor::CapacitySchedulerPolicy;
using executor::ContextChunkingPolicy;

class Pass {
 public:
  Pass(const SchedulerLimits& limits, int32_t free_blocks, std::span<const RequestView> requests, SchedulerPlan& plan)
      : limits_(limits),
        requests_(requests),
        plan_(plan),
        free_blocks_(free_blocks),
        adapters_(plan.scratch.adapters),
        computing_(plan.scratch.computing),
        skipped_(plan.scratch.skipped) {
    while (num_running_ < count() && at(num_running_).running) ++num_running_;
    plan.paused.clear();
    plan.started.clear();
    plan.bypassed.clear();
    plan.sequences.clear();
    adapters_.clear();
    computing_.clear();
    skipped_.clear();
  }

  void run() {
    keepRunning();
    for (int32_t i = 0; i < last_running_; ++i) {
      if (at(i).generating) plan_.sequences.push_back({i, 1, false, true});
    }
    num_generating_ = static_cast<int32_t>(plan_.sequences.size());
    tokens_left_ = limits_.max_num_tokens - num_generating_;
    for (int32_t i = 0; i < last_running_; ++i) {
      if (!at(i).generating) plan_.sequences.push_back({i, 0, true, false});
    }
    if (mayStart()) addWaiting();
    shareTokens();
    keepContextsWithTokens();
    order();
  }

 private:
  int32_t count() const { return static_cast<int32_t>(requests_.size()); }
  const RequestView& at(int32_t i) const { return requests_[static_cast<size_t>(i)]; }
  int32_t blocksFor(int32_t tokens) const { return (tokens + limits_.tokens_per_block - 1) / limits_.tokens_per_block; }
  // Blocks for the next token: a context takes those of all its tokens when it starts, so that no chunk of it
  // fails.
  int32_t blocksNow(const RequestView& r) const { return std::max(blocksFor(r.num_tokens), r.blocks_held); }
  int32_t blocksAtEnd(const RequestView& r) const {
    return std::max({blocksFor(r.final_cached), blocksFor(r.num_tokens), r.blocks_held});
  }
  bool pausing() const { return limits_.policy == CapacitySchedulerPolicy::kMAX_UTILIZATION; }

  // Blocks of the pool that are gone when r has what it needs: what it lacks, and what it takes over and
  // nobody else uses.
  int32_t takes(const RequestView& r, int32_t needed) const { return needed - r.blocks_held + r.blocks_taken; }

  // Settles who goes on: [0, last_running_), the others are paused from the back.
  void keepRunning() {
    last_running_ = num_running_;
    if (!pausing()) {
      for (int32_t i = 0; i < num_running_; ++i) free_blocks_ -= takes(at(i), blocksAtEnd(at(i)));
      return;
    }
    for (int32_t i = 0; i < last_running_; ++i) {
      const int32_t need = takes(at(i), blocksNow(at(i)));
      while (need > free_blocks_ && last_running_ > i) {
        plan_.paused.push_back(--last_running_);
        free_blocks_ += at(last_running_).blocks_freed;
      }
      if (last_running_ > i) free_blocks_ -= need;
    }
  }

  // A step that had to pause starts nobody: the blocks that are left belong to those who were paused.
  bool mayStart() const {
    if (!plan_.paused.empty()) return false;
    return limits_.policy != CapacitySchedulerPolicy::kSTATIC_BATCH || num_running_ == 0;
  }

  // Generation takes a token of each running request, so no more run than a step has tokens.
  int32_t maxRunning() const { return std::min(limits_.max_batch_size, limits_.max_num_tokens); }

  void addWaiting() {
    // Those ahead take at least a token each; when none are left over, the search may end early.
    int32_t tokens = tokens_left_;
    for (const auto& sequence : plan_.sequences) {
      if (sequence.context) tokens -= 1;
    }
    AdapterSize adapters;
    for (int32_t i = 0; i < last_running_; ++i) {
      computes(at(i));
      adapters += takeAdapters(at(i));
    }
    int32_t running = last_running_;
    bool adapters_wait = false;  // for a request that was overtaken often enough
    for (int32_t i = num_running_; i < count() && running < maxRunning() && tokens > 0; ++i) {
      const RequestView& r = at(i);
      if (r.adapter != 0 && (adapters_wait || !r.adapter_ready)) continue;
      if (r.can_reuse_next && isComputed(r.next_block)) continue;
      const AdapterSize new_adapters = adaptersLacking(r);
      if (new_adapters != AdapterSize() && !(adapters + new_adapters).within(limits_.adapter_budget)) {
        adapters_wait = r.times_bypassed >= limits_.max_bypasses;
        skipped_.push_back(i);
        continue;
      }
      const int32_t need = takes(r, pausing() ? blocksNow(r) : blocksAtEnd(r));
      if (need > free_blocks_) break;
      free_blocks_ -= need;
      computes(r);
      adapters += takeAdapters(r);
      ++running;
      --tokens;
      plan_.sequences.push_back({i, 0, true, false});
    }
  }

  bool takesRoom(const AdapterUse& use) const {
    return std::find(adapters_.begin(), adapters_.end(), use.number) == adapters_.end();
  }
  AdapterSize adaptersLacking(const RequestView& r) const {
    AdapterSize size;
    for (const AdapterUse& use : r.adapters) {
      if (takesRoom(use)) size += use.size;
    }
    return size;
  }
  AdapterSize takeAdapters(const RequestView& r) {
    AdapterSize size;
    for (const AdapterUse& use : r.adapters) {
      if (!takesRoom(use)) continue;
      adapters_.push_back(use.number);
      size += use.size;
    }
    return size;
  }

  void computes(const RequestView& r) {
    if (!r.generating && r.next_block != 0) computing_.push_back(r.next_block);
  }
  // A static batch starts together or not at all: nobody in it can wait for another.
  bool isComputed(uint64_t block) const {
    return limits_.policy != CapacitySchedulerPolicy::kSTATIC_BATCH &&
           std::find(computing_.begin(), computing_.end(), block) != computing_.end();
  }

  bool chunkable(const RequestView& r) const { return limits_.chunked_context || r.was_paused; }

  // The largest chunk of r that fits `room` tokens: all that remains, or up to a block's end.
  int32_t largestChunk(const RequestView& r, int32_t room) const {
    const int32_t remaining = r.num_tokens - r.num_cached;
    if (remaining <= room) return remaining;
    if (!chunkable(r)) return 0;
    const int32_t end = (r.num_cached + room) / limits_.tokens_per_block * limits_.tokens_per_block;
    return std::max(0, end - r.num_cached);
  }

  void shareTokens() {
    const auto contexts = std::span(plan_.sequences).subspan(static_cast<size_t>(num_generating_));
    if (limits_.chunking_policy == ContextChunkingPolicy::kEQUAL_PROGRESS) {
      shareEqually(contexts);
      return;
    }
    for (auto& sequence : contexts) {
      sequence.num_tokens = largestChunk(at(sequence.request_index), tokens_left_);
      if (sequence.num_tokens == 0) return;
      tokens_left_ -= sequence.num_tokens;
    }
  }

  // Round robin, one block's worth (or the whole, where chunks are not allowed) a turn.
  void shareEqually(std::span<PlannedSequence> contexts) {
    for (bool first_turn = true, progress = true; progress; first_turn = false) {
      progress = false;
      for (auto& sequence : contexts) {
        const RequestView& r = at(sequence.request_index);
        const int32_t done = r.num_cached + sequence.num_tokens;
        if (done == r.num_tokens || (!first_turn && sequence.num_tokens == 0)) continue;
        const int32_t block_end = (done / limits_.tokens_per_block + 1) * limits_.tokens_per_block;
        const int32_t end = chunkable(r) ? std::min(r.num_tokens, block_end) : r.num_tokens;
        if (end - done > tokens_left_) {
          if (first_turn) break;
          continue;
        }
        sequence.num_tokens += end - done;
        tokens_left_ -= end - done;
        progress = true;
      }
    }
  }

  void keepContextsWithTokens() {
    std::erase_if(plan_.sequences, [](const PlannedSequence& s) { return s.num_tokens == 0; });
    for (auto& sequence : plan_.sequences) {
      const RequestView& r = at(sequence.request_index);
      sequence.samples = r.num_cached + sequence.num_tokens == r.num_tokens;
      if (!r.running) plan_.started.push_back(sequence.request_index);
    }
    int32_t last_with_adapter = -1;
    for (const int32_t i : plan_.started) {
      if (at(i).adapter != 0) last_with_adapter = i;
    }
    for (const int32_t i : skipped_) {
      if (last_with_adapter > i) plan_.bypassed.push_back(i);
    }
  }

  void order() {
    std::sort(plan_.sequences.begin(), plan_.sequences.end(),
              [this](const PlannedSequence& a, const PlannedSequence& b) {
                if (a.context != b.context) return a.context;
                const uint64_t of_a = at(a.request_index).adapter, of_b = at(b.request_index).adapter;
                return of_a != of_b ? of_a < of_b : a.request_index < b.request_index;
              });
  }

  const SchedulerLimits& limits_;
  const std::span<const RequestView> requests_;
  SchedulerPlan& plan_;
  int32_t num_running_ = 0;
  int32_t last_running_ = 0;  // running requests that were not paused
  int32_t num_generating_ = 0;
  int32_t tokens_left_ = 0;
  int32_t free_blocks_;
  std::vector<uint64_t>& adapters_;
  std::vector<uint64_t>& computing_;
  std::vector<int32_t>& skipped_;
};

}  // namespace

void schedule(const SchedulerLimits& limits, int32_t free_blocks, std::span<const RequestView> requests,
              SchedulerPlan& plan) {
  assert(limits.max_batch_size > 0 && limits.max_num_tokens > 0 && limits.tokens_per_block > 0);
  assert(free_blocks >= 0 && free_blocks <= limits.kv_blocks);
  Pass(limits, free_blocks, requests, plan).run();
}

}  // namespace chorus
