// Decides what the next step computes: a pure function of requests and budgets, without clock, I/O or tensors.
//
// It makes two decisions together. Capacity: which requests hold KV blocks and adapters (TensorRT-LLM's policies).
// Micro batch: how many of their tokens the step computes. Running requests are never overtaken for lack of tokens:
// the first context that gets no tokens ends the search, so requests behind it cannot keep it waiting. A waiting
// request whose next block is being computed by another request waits for that block instead of computing it too. If
// the other request is skipped, only those of its client wait.
//
// Both decisions are max-min fair between clients. Waiting requests are tried in the order of FairQueue. If a slot,
// blocks or adapter room are missing for one, a sequence of the client that holds the most of them is paused, provided
// that this client then still holds as much as the newcomer's client; both amounts are divided by the clients' weights.
// So a pause never leads to the opposite pause (turn_steps and max_bypasses are the exceptions). The tokens that
// generation leaves are given to the clients in turn, a block's worth at a time. If there is a single client, nothing
// is paused for fairness, and chunking_policy divides the tokens.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "chorus/types.h"
#include "runtime/adapter_cache/adapter_size.h"
#include "runtime/fair_queue.h"
#include "runtime/kv_cache/kv_demand.h"

namespace chorus {

struct SchedulerLimits {
  executor::CapacitySchedulerPolicy policy = executor::CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT;
  executor::ContextChunkingPolicy chunking_policy = executor::ContextChunkingPolicy::kFIRST_COME_FIRST_SERVED;
  bool chunked_context = true;
  int32_t max_batch_size = 1;  // requests that run at once
  int32_t max_num_tokens = 1;  // rows per step; at least kv.tokens_per_block if contexts may be chunked
  KvDemand kv;
  int32_t kv_blocks = 1;       // size of the pool; any single request must fit to its end
  AdapterSize adapter_budget;  // limit for the sum of the distinct adapters of running requests
  // Steps in which later requests may overtake one that does not fit. Then they wait for it, and it may pause sequences
  // of any other client that had their turn.
  int32_t max_bypasses = 64;
  // Steps after which a sequence may be paused even if its client then holds less than the newcomer's. Clients thereby
  // take turns in a pool or batch that holds one request at a time.
  int32_t turn_steps = 32;
  // Rows per step of chunks whose rows all have logits (RequestView::scored_from); at least kv.tokens_per_block. A
  // context that may not be chunked is exempt.
  int32_t max_scored_rows = std::numeric_limits<int32_t>::max();
};

// Room of one step.
struct StepRoom {
  int32_t free_blocks = 0;  // of the pool: all blocks that no KV group without a window uses
  uint64_t turn = 0;        // step number; rotates which client's contexts get tokens first
  // Maximum context tokens, raised to one block if less. With several clients it is limited, because the generation of
  // all clients waits for a step with long contexts.
  int32_t context_tokens = std::numeric_limits<int32_t>::max();
  // Limit on scored rows, beside SchedulerLimits::max_scored_rows; raised to one block if less.
  int32_t scored_tokens = std::numeric_limits<int32_t>::max();
};

// An adapter of a request.
struct AdapterUse {
  uint64_t number = 0;  // equal numbers are one adapter
  AdapterSize size;
};

// State of a request, as input of schedule().
struct RequestView {
  int32_t num_tokens = 0;    // known tokens, prompt and generated
  int32_t num_cached = 0;    // of these, tokens whose keys and values are in the cache
  int32_t final_cached = 0;  // tokens in the cache at the latest possible end: prompt + maxTokens - 1
  // Blocks in KV groups without a window. Those in groups with windows are not counted: a sequence that leaves a block
  // behind which others share frees nothing, so each sequence needs room for the most blocks that it can hold there.
  int32_t blocks_held = 0;      // waiting: blocks it can reuse
  int32_t blocks_taken = 0;     // waiting: of these, free blocks, which its start takes from the pool
  int32_t blocks_freed = 0;     // running: blocks that its pause frees after all requests behind it were paused
  int32_t blocks_alone = 0;     // running: blocks that no other request uses
  uint64_t next_block = 0;      // identifies the next complete block of its context; 0: none to share
  bool can_reuse_next = false;  // waiting: it can reuse next_block once that is computed
  bool running = false;         // was started and not paused
  bool generating = false;      // its context is done: one token a step, unless it is skipped
  bool was_paused = false;      // always chunkable, because its context may have outgrown max_num_tokens
  // Context: position from which all rows of its chunks have logits, for the log probabilities of its prompt. A chunk
  // that begins before the block of this position ends at that block's start at the latest.
  int32_t scored_from = std::numeric_limits<int32_t>::max();
  // Maximum tokens of the next chunk of a context that may be chunked.
  int32_t max_chunk = std::numeric_limits<int32_t>::max();
  uint64_t adapter = 0;  // adapter or composition of its rows, adjacent in a step if equal; 0: base only
  std::span<const AdapterUse> adapters;  // distinct adapters that it needs; several for a composition
  bool adapter_ready = true;
  bool has_place = true;  // waiting: slots and blocks are free for it
  int32_t times_bypassed = 0;
  std::optional<uint64_t> client;
  int32_t weight = 1;  // of the client
  float priority = 0;
  int32_t steps_run = 0;          // running: steps since it started; four that skipped it count as one
  int32_t steps_without_row = 0;  // running: latest steps in which it had no row
  double adapter_size = 0;        // bytes of its adapters, divided by those of the base model's weights
  bool costly = false;            // its rows are limited (runtime/costly_rows.h)
  // It gets no rows in this step (runtime/costly_rows.h, runtime/row_shares.h). A waiting one may start nevertheless if
  // it was bypassed max_bypasses times, one in a step. While it is skipped, it counts as bypassed only if it lacks
  // blocks.
  bool skipped = false;
};

struct PlannedSequence {
  int32_t request_index = 0;  // into the views
  int32_t num_tokens = 0;     // rows in this step, from position num_cached on
  bool context = false;
  bool samples = false;  // its last row yields the next token
};

// Resources that a client holds in a plan.
struct ClientTally {
  std::optional<uint64_t> client;
  int32_t sequences = 0;
  int32_t blocks = 0;
};
// A block that a running context computes.
struct ComputedBlock {
  uint64_t block = 0;  // RequestView::next_block
  bool skipped = false;
  std::optional<uint64_t> client;
};
// A client whose contexts share the step's tokens.
struct ContextLane {
  std::optional<uint64_t> client;
  bool closed = false;  // gets no more: its next chunk does not fit, or its contexts are complete
};

// Indices are positions in the views. Apply in this order: paused, started, sequences.
struct SchedulerPlan {
  std::vector<int32_t> paused;    // release blocks and slot; known tokens stay, num_cached becomes 0
  std::vector<int32_t> started;   // take a slot
  std::vector<int32_t> bypassed;  // lacked adapter room (or blocks) while a later request (with an adapter) started
  std::vector<PlannedSequence> sequences;  // packed order: contexts, then generation, each by adapter (none first)

  // Scratch memory of schedule(), kept between calls.
  struct Scratch {
    std::vector<uint64_t> adapters;          // distinct adapters of running requests
    std::vector<ComputedBlock> computing;    // by running contexts
    std::vector<int32_t> short_of_adapters;  // waiting requests without adapter room
    std::vector<int32_t> skipped;            // waiting requests that are skipped and lack blocks
    std::vector<int32_t> short_of_blocks;    // waiting requests without blocks, which other clients may overtake
    std::vector<ClientTally> clients;
    std::vector<uint8_t> gone;  // per running request: 1 if it is paused for another client
    std::vector<ContextLane> lanes;
  } scratch;

  // requests: number of views, of which `running` are running.
  void reserve(size_t requests, size_t running);
};

// Free blocks that the request takes beside those it holds, if it is given all that it may ever hold (or, under
// kMAX_UTILIZATION, all that it needs now).
int32_t blocksLacking(const SchedulerLimits& limits, const RequestView& request);

// requests: the running ones in the order they started, then the waiting ones in the order of FairQueue's turns. The
// caller must allocate blocks for all known tokens of every planned sequence; in KV groups with windows, for those up
// to the end of this step. The pool has enough of them if all starting requests first take the blocks they reuse.
// Overwrites plan; reuses its memory.
void schedule(const SchedulerLimits& limits, const StepRoom& room, std::span<const RequestView> requests,
              SchedulerPlan& plan);

}  // namespace chorus
