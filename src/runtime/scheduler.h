// What the next step computes: a pure function of requests and budgets. No clock, no I/O, no tensors.
//
// Two decisions, made together. Capacity: which requests hold KV blocks and adapters (TensorRT-LLM's
// policies). Micro batch: how many of their tokens fit this step. Running requests are never overtaken for
// lack of tokens: the first context that gets none ends the search, so nobody behind it can keep it waiting.
// A request whose next block is just being computed for another waits for it instead of computing it too.
//
// Between clients both decisions are max-min fair. Who waits comes in the order of FairQueue. Where slots, blocks or
// adapters' room are missing for it, a sequence of the client that holds the most of them is paused, if that client
// still holds as much as the newcomer's afterwards: so a pause never calls for the opposite one. The tokens that
// generation leaves are given block by block to each client in turn. One client alone never pauses for this and shares
// its tokens as its policy says.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "chorus/types.h"
#include "runtime/adapter_cache/adapter_size.h"
#include "runtime/fair_queue.h"

namespace chorus {

struct SchedulerLimits {
  executor::CapacitySchedulerPolicy policy = executor::CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT;
  executor::ContextChunkingPolicy chunking_policy = executor::ContextChunkingPolicy::kFIRST_COME_FIRST_SERVED;
  bool chunked_context = true;
  int32_t max_batch_size = 1;  // requests that run at once
  int32_t max_num_tokens = 1;  // rows of a step; at least tokens_per_block where a context can need chunks
  int32_t tokens_per_block = 1;
  int32_t kv_blocks = 1;       // the whole pool; holds at least one request to its end alone
  AdapterSize adapter_budget;  // what the distinct adapters of running requests may take
  int32_t max_bypasses = 64;   // steps in which later adapters overtake one that does not fit, before they wait
  // Steps for which a client runs before it may be paused where it would keep less than whom it is paused for: a pool
  // or a batch that holds one request at a time is shared by turns.
  int32_t turn_steps = 32;
};

// What one step has.
struct StepRoom {
  int32_t free_blocks = 0;  // of the pool, cached content counting as free
  uint64_t turn = 0;        // number of the step: whose context is first to get tokens goes round by it
  // Tokens of contexts at most, at least a block's; longer ones of several clients make steps that all of them wait
  // for.
  int32_t context_tokens = std::numeric_limits<int32_t>::max();
};

// An adapter of a request.
struct AdapterUse {
  uint64_t number = 0;  // equal numbers are one adapter
  AdapterSize size;
};

// A request as the scheduler sees it.
struct RequestView {
  int32_t num_tokens = 0;       // known tokens, prompt and generated
  int32_t num_cached = 0;       // of these, tokens whose keys and values stand in the cache
  int32_t final_cached = 0;     // tokens in the cache at the latest possible end: prompt + maxTokens - 1
  int32_t blocks_held = 0;      // waiting: those it can reuse
  int32_t blocks_taken = 0;     // waiting: of these, free ones, which its start takes from the pool
  int32_t blocks_freed = 0;     // running: blocks that pausing it frees once all behind it are paused
  int32_t blocks_alone = 0;     // running: blocks that nobody else uses
  uint64_t next_block = 0;      // number of the complete block that its context computes next; 0: none to share
  bool can_reuse_next = false;  // waiting: it would take that block over were it computed
  bool running = false;         // was started and not paused
  bool generating = false;      // its context is done: one token a step
  bool was_paused = false;      // recomputes a context that may have outgrown max_num_tokens: always chunkable
  uint64_t adapter = 0;         // what its rows run with; 0: the base alone; equal numbers are neighbours in a step
  std::span<const AdapterUse> adapters;  // that this takes, distinct; several make up a composition
  bool adapter_ready = true;
  int32_t times_bypassed = 0;
  uint64_t client = 0;  // equal numbers are one client
  float priority = 0;
  int32_t steps_run = 0;  // running: steps since it started
};

struct PlannedSequence {
  int32_t request_index = 0;  // into the views
  int32_t num_tokens = 0;     // rows of this step, from num_cached on
  bool context = false;
  bool samples = false;  // its last row gives the next token
};

// What a client holds in a plan.
struct ClientTally {
  uint64_t client = 0;
  int32_t sequences = 0;
  int32_t blocks = 0;
};
// A client's contexts in a plan.
struct ContextLane {
  uint64_t client = 0;
  bool closed = false;  // its next chunk does not fit
};

// Indices are positions in the views. Apply in this order: paused, started, sequences.
struct SchedulerPlan {
  std::vector<int32_t> paused;    // give blocks and slot back; known tokens stay, num_cached becomes 0
  std::vector<int32_t> started;   // take a slot
  std::vector<int32_t> bypassed;  // skipped for want of adapter room, while a later one with an adapter started
  std::vector<PlannedSequence> sequences;  // packed order: contexts, then generation, each by adapter (none first)

  // Memory of schedule() itself.
  struct Scratch {
    std::vector<uint64_t> adapters;        // of those that run, distinct
    std::vector<uint64_t> computing;       // next blocks of contexts that run
    std::vector<int32_t> skipped;          // waiting ones without adapter room
    std::vector<int32_t> short_of_blocks;  // waiting ones that others may overtake
    std::vector<ClientTally> clients;
    std::vector<uint8_t> gone;  // running ones that are paused for others
    std::vector<ContextLane> lanes;
  } scratch;

  // For requests of this number in all, so many of them running.
  void reserve(size_t requests, size_t running);
};

// requests: the running ones in the order they started, then the waiting ones in the order of FairQueue's turns. Every
// sequence of the plan then needs blocks for all its known tokens, which the pool has once those that start have taken
// the blocks they reuse. Overwrites plan; reuses its memory.
void schedule(const SchedulerLimits& limits, const StepRoom& room, std::span<const RequestView> requests,
              SchedulerPlan& plan);

}  // namespace chorus
