#include "kernels/attention/cpu.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "base/round_up.h"
#include "kernels/attention/kv_run.h"
#include "kernels/attention/online_softmax_kernels.h"
#include "kernels/attention/products.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

// Up to max_rows queries that are multiplied together.
struct Tile {
  int count = 0;
  int64_t first = 0;              // index of its first query in the item
  const void* queries = nullptr;  // packed
  // Each query attends to positions [begin, end). Neither decreases from one query to the next.
  int64_t begin[kAttentionTileRows] = {};
  int64_t end[kAttentionTileRows] = {};
  float slopes[kAttentionTileRows] = {};  // of the queries' heads

  int64_t firstPosition() const { return begin[0]; }
  int64_t endPosition() const { return end[count - 1]; }
};

// Accumulator of one query: online-softmax state, then the unnormalised output, padded to whole panels. The
// accumulators of an item's queries are Call::resultFloats() floats apart.
struct Result {
  static constexpr int64_t kStateFloats = sizeof(SoftmaxState) / sizeof(float);
  float* at;
  SoftmaxState& state() const { return *reinterpret_cast<SoftmaxState*>(at); }
  float* out() const { return at + kStateFloats; }
};

// Data that all items of a call share.
struct Call {
  const AttentionArgs& args;
  const StepBatch& batch;
  const AttentionProducts& products;
  const OnlineSoftmaxKernels& softmax;
  KvRunReader cache;
  int64_t group;
  float* partials;  // [partial results][resultFloats()]

  int64_t headSize() const { return args.kv.head_size; }
  int64_t queries(const AttentionItem& item) const { return (item.row_end - item.row_begin) * group; }
  // The positions that query i attends to: [beginOf, endOf).
  int64_t beginOf(const AttentionItem& item, int64_t i) const { return args.mask.firstPosition(endOf(item, i) - 1); }
  int64_t endOf(const AttentionItem& item, int64_t i) const {
    return int64_t{sequence(item).first_position} + item.row_begin + i / group + 1;
  }
  float slope(int32_t kv_head, int64_t i) const {
    return args.score.slopes == nullptr ? 0 : args.score.slopes[kv_head * group + i % group];
  }
  const SequenceSpan& sequence(const AttentionItem& item) const {
    return batch.sequences[static_cast<size_t>(item.sequence)];
  }
  // Query i of an item. Queries are ordered by row, and within a row by query head of the group.
  const float* query(const AttentionItem& item, int32_t kv_head, int64_t i) const {
    return args.q.row(row(item, i)) + column(kv_head, i);
  }
  float* out(const AttentionItem& item, int32_t kv_head, int64_t i) const {
    return args.out.row(row(item, i)) + column(kv_head, i);
  }
  int64_t resultFloats() const { return Result::kStateFloats + roundUp(headSize(), kPanelCols); }
  Result partial(const AttentionItem& item, int32_t kv_head, int64_t split, int64_t i) const {
    const int64_t splits = item.block_end - item.block_begin, at = split - item.block_begin;
    return {partials + (item.partial + (kv_head * splits + at) * queries(item) + i) * resultFloats()};
  }
  // Whether query i attends to any position of the KV split.
  bool attends(const AttentionItem& item, int64_t i, int64_t split) const {
    return split * kAttentionSplit < endOf(item, i) && beginOf(item, i) < (split + 1) * kAttentionSplit;
  }
  // First run of a KV split that the item's queries attend to.
  int64_t firstRun(const AttentionItem& item, int64_t split) const {
    const int64_t first = std::max(split * kAttentionSplit, beginOf(item, 0));
    return first / kAttentionRun * kAttentionRun;
  }

 private:
  int64_t row(const AttentionItem& item, int64_t i) const {
    return sequence(item).row_begin + item.row_begin + i / group;
  }
  int64_t column(int32_t kv_head, int64_t i) const { return (int64_t{kv_head} * group + i % group) * headSize(); }
};

// Scratch memory of a thread for one item.
struct ItemMemory {
  std::byte* queries;
  std::byte* cache;
  float* weights;  // [kAttentionTileRows][kAttentionRun]
  std::byte* packed_weights;
  std::byte* values;  // a copy of a run's values
  Tile* tiles;
  float* first;  // accumulators of the item's first KV split, then of all merged splits
  float* later;  // accumulators of a later KV split

  // Divides `memory` among the pointers and returns the bytes needed. `memory` may be null to compute only the size.
  size_t lay(const Call& call, int64_t queries_of_item, std::byte* memory) {
    size_t bytes = 0;
    const auto take = [&](auto*& pointer, int64_t count) {
      using T = std::remove_reference_t<decltype(*pointer)>;
      pointer = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + bytes);
      bytes += static_cast<size_t>(roundUp(count * static_cast<int64_t>(sizeof(T)), 64));
    };
    take(queries, call.products.tileBytes(queries_of_item, call.headSize()));
    take(cache, call.cache.scratchBytes());
    take(weights, int64_t{kAttentionTileRows} * kAttentionRun);
    take(packed_weights, call.products.tileBytes(kAttentionTileRows, kAttentionRun));
    take(values, call.cache.valueBytes());
    take(tiles, queries_of_item);
    take(first, queries_of_item * call.resultFloats());
    take(later, queries_of_item * call.resultFloats());
    return bytes;
  }
};

class ItemRunner {
 public:
  ItemRunner(const Call& call, const AttentionItem& item, int32_t kv_head, const ItemMemory& memory,
             const KvRun& following)
      : call_(call),
        item_(item),
        kv_head_(kv_head),
        memory_(memory),
        following_(following),
        queries_(call.queries(item)) {}

  void run() {
    packQueries();
    for (int32_t split = item_.split_begin; split < item_.split_end; ++split) {
      runSplit(split);
      if (item_.partial >= 0 || split == item_.split_begin) continue;
      for (int64_t i = 0; i < queries_; ++i) {
        if (!call_.attends(item_, i, split)) continue;
        const Result later = result(split, i), all = result(item_.split_begin, i);
        call_.softmax.merge(later.state(), later.out(), all.state(), all.out(), call_.headSize());
      }
    }
    if (item_.partial >= 0) return;
    for (int64_t i = 0; i < queries_; ++i) {
      const Result all = result(item_.split_begin, i);
      call_.softmax.finish(all.state(), all.out(), call_.headSize(), call_.out(item_, kv_head_, i));
    }
  }

 private:
  Result result(int32_t split, int64_t i) const {
    if (item_.partial >= 0) return call_.partial(item_, kv_head_, split, i);
    return {(split == item_.split_begin ? memory_.first : memory_.later) + i * call_.resultFloats()};
  }

  void packQueries() {
    tiles_ = (queries_ + call_.products.max_rows - 1) / call_.products.max_rows;
    std::byte* packed = memory_.queries;
    for (int64_t t = 0; t < tiles_; ++t) {
      Tile& tile = *new (memory_.tiles + t) Tile;
      tile.first = queries_ * t / tiles_;
      tile.count = static_cast<int>(queries_ * (t + 1) / tiles_ - tile.first);
      const float* rows[kAttentionTileRows];
      for (int r = 0; r < tile.count; ++r) {
        const int64_t i = tile.first + r;
        rows[r] = call_.query(item_, kv_head_, i);
        tile.begin[r] = call_.beginOf(item_, i);
        tile.end[r] = call_.endOf(item_, i);
        tile.slopes[r] = call_.slope(kv_head_, i);
      }
      tile.queries = packed;
      call_.products.pack(rows, tile.count, call_.headSize(), packed);
      packed += call_.products.tileBytes(tile.count, call_.headSize());
    }
  }

  void runSplit(int32_t split) {
    const int64_t item_end =
        std::min<int64_t>(call_.endOf(item_, queries_ - 1), int64_t{item_.split_end} * kAttentionSplit);
    const int64_t end = std::min<int64_t>(int64_t{split + 1} * kAttentionSplit, item_end);
    // Includes queries that do not attend to the split, because they may share a tile with others.
    for (int64_t i = 0; i < queries_; ++i) {
      const Result r = result(split, i);
      call_.softmax.start(r.state(), r.out(), roundUp(call_.headSize(), kPanelCols));
    }
    const std::span<const int32_t> blocks = call_.sequence(item_).block_tables[call_.args.kv.group];
    for (int64_t run = call_.firstRun(item_, split); run < end; run += kAttentionRun) {
      const KvRun kv = call_.cache.read(blocks, kv_head_, run, call_.beginOf(item_, 0), end, memory_.cache);
      // If the next run is incomplete, prefetches the following item instead: an incomplete run is short and would
      // leave no time to do it.
      const int64_t next_run = run + kAttentionRun;
      KvRun next = next_run + kAttentionRun > item_end ? following_ : call_.cache.place(blocks, kv_head_, next_run);
      for (int64_t t = 0; t < tiles_; ++t) {
        const Tile& tile = memory_.tiles[t];
        if (tile.endPosition() <= run || tile.firstPosition() >= next_run) continue;
        runTile(tile, split, run, kv, next);
        next = {};
      }
    }
  }

  // next: a run to prefetch during the products.
  void runTile(const Tile& tile, int32_t split, int64_t run, const KvRun& kv, const KvRun& next) {
    const int64_t slots = std::min<int64_t>(kAttentionRun, tile.endPosition() - run);
    AttentionProduct scores{tile_configuration_};
    scores.x = tile.queries;
    scores.inputs = call_.headSize();
    scores.w = kv.keys;
    scores.input_stride = call_.cache.keyStride();
    scores.panels = (slots + kPanelCols - 1) / kPanelCols;
    scores.y = memory_.weights;
    scores.y_stride = kAttentionRun;
    scores.next = next.keys;
    call_.products.run[tile.count](scores);

    int64_t begin[kAttentionTileRows], end[kAttentionTileRows];  // slots of the run that a query attends to
    float factors[kAttentionTileRows];
    for (int r = 0; r < tile.count; ++r) {
      begin[r] = tile.begin[r] - run;
      end[r] = tile.end[r] - run;
    }
    const Result first = result(split, tile.first);
    const AttentionScore& score = call_.args.score;
    call_.softmax.update({.scores = memory_.weights,
                          .count = tile.count,
                          .begin = begin,
                          .end = end,
                          .scale = score.scale,
                          .softcap = score.softcap,
                          .slopes = score.slopes == nullptr ? nullptr : tile.slopes,
                          .states = first.at,
                          .stride = call_.resultFloats(),
                          .factors = factors});
    if (!call_.products.takesFloats()) {
      const float* rows[kAttentionTileRows];
      for (int r = 0; r < tile.count; ++r) rows[r] = memory_.weights + r * kAttentionRun;
      call_.products.pack(rows, tile.count, kAttentionRun, memory_.packed_weights);
    }

    AttentionProduct sums{tile_configuration_};
    sums.inputs = slots;
    sums.w = kv.values;
    sums.input_stride = call_.cache.valueStride();
    sums.panels = (call_.headSize() + kPanelCols - 1) / kPanelCols;
    sums.y_stride = call_.resultFloats();
    sums.next = next.values;
    // Weight 0 times a value that a row does not attend to is 0, unless the value is infinite or NaN. In that case,
    // only rows that attend to the same slots are multiplied together, by values that are 0 before these slots.
    const bool finite_before =
        begin[tile.count - 1] <= 0 || call_.cache.finite(call_.softmax, kv, 0, std::min(begin[tile.count - 1], slots));
    const bool finite_after =
        end[0] >= slots || call_.cache.finite(call_.softmax, kv, std::max<int64_t>(0, end[0]), slots);
    const bool together = finite_before && finite_after;
    for (int r = 0; r < tile.count;) {
      int next_row = tile.count;
      if (!together) {
        next_row = r + 1;
        while (next_row < tile.count && begin[next_row] == begin[r] && end[next_row] == end[r]) ++next_row;
        sums.inputs = std::clamp<int64_t>(end[r], 0, slots);
        sums.w = begin[r] <= 0 ? kv.values : call_.cache.valuesFrom(kv, std::min(begin[r], slots), memory_.values);
      }
      sums.x = (call_.products.takesFloats() ? reinterpret_cast<std::byte*>(memory_.weights) : memory_.packed_weights) +
               r * call_.products.tileBytes(1, kAttentionRun);
      sums.y = first.out() + r * call_.resultFloats();
      sums.factors = factors + r;
      call_.products.run[next_row - r](sums);
      r = next_row;
    }
  }

  const Call& call_;
  const AttentionItem& item_;
  int32_t kv_head_;
  const ItemMemory& memory_;
  const KvRun following_;  // first run of the item that this thread will most likely take next
  int64_t queries_;
  int64_t tiles_ = 0;
  TileConfiguration tile_configuration_;
};

// Merges the KV splits of a row block that several items computed.
void mergeShared(const Call& call, const AttentionItem& block, int32_t kv_head) {
  for (int64_t i = 0; i < call.queries(block); ++i) {
    const Result all = call.partial(block, kv_head, block.split_begin, i);
    for (int32_t split = block.split_begin + 1; split < block.split_end; ++split) {
      if (!call.attends(block, i, split)) continue;
      const Result later = call.partial(block, kv_head, split, i);
      call.softmax.merge(later.state(), later.out(), all.state(), all.out(), call.headSize());
    }
    call.softmax.finish(all.state(), all.out(), call.headSize(), call.out(block, kv_head, i));
  }
}
}  // namespace

void attentionCpu(const AttentionArgs& args, const StepBatch& batch, CpuWorkspace& workspace, AttentionPlans& plans) {
  assert(args.num_heads % args.kv.num_kv_heads == 0);
  const int32_t kv_heads = args.kv.num_kv_heads, group = args.num_heads / kv_heads, threads = workspace.pool.size();
  const AttentionPlan& plan = plans.planFor(batch, {group, kv_heads, args.mask.window}, threads);

  const DType dtype = args.kv.dtype;
  Call call{.args = args,
            .batch = batch,
            .products = *workspace.select(Op::kAttention, attentionProducts(dtype), dtype),
            .softmax = *selectKernel(onlineSoftmaxKernels(), workspace.isa).kernel,
            .cache = KvRunReader(args.kv),
            .group = group,
            .partials = nullptr};
  call.partials =
      workspace.shared[0].reserve<float>(static_cast<size_t>(attentionPartials(threads) * call.resultFloats()));
  const int64_t most_queries = int64_t{attentionRowsPerItem(group)} * group;
  ItemMemory memory;
  const size_t bytes = memory.lay(call, most_queries, nullptr);
  for (ScratchMemory& scratch : workspace.thread) scratch.reserve<std::byte>(bytes);

  workspace.pool.run(std::ssize(plan.items) * kv_heads, [&](int64_t task, int thread) {
    const AttentionItem& item = plan.items[static_cast<size_t>(task / kv_heads)];
    ItemMemory own;
    own.lay(call, most_queries, workspace.thread[static_cast<size_t>(thread)].reserve<std::byte>(0));
    KvRun following;
    if (task + threads < std::ssize(plan.items) * kv_heads) {
      const AttentionItem& next = plan.items[static_cast<size_t>((task + threads) / kv_heads)];
      following = call.cache.place(call.sequence(next).block_tables[args.kv.group], (task + threads) % kv_heads,
                                   call.firstRun(next, next.split_begin));
    }
    ItemRunner(call, item, static_cast<int32_t>(task % kv_heads), own, following).run();
  });
  workspace.pool.run(std::ssize(plan.shared) * kv_heads, [&](int64_t task, int) {
    mergeShared(call, plan.shared[static_cast<size_t>(task / kv_heads)], static_cast<int32_t>(task % kv_heads));
  });
}

std::vector<Variant> attentionVariants() {
  std::vector<Variant> variants;
  for (const DType dtype : attentionTypes()) {
    const auto some = variantsOf(Op::kAttention, attentionProducts(dtype), dtype);
    variants.insert(variants.end(), some.begin(), some.end());
  }
  return variants;
}

}  // namespace chorus
