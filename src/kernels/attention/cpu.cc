#include "kernels/attention/cpu.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <new>

#include "base/round_up.h"
#include "kernels/attention/kv_run.h"
#include "kernels/attention/products.h"
#include "kernels/attention/softmax_kernels.h"
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

// Accumulator of one query: state of the softmax, then the unnormalised output, padded to whole panels. The
// accumulators of an item's queries are Call::resultFloats() floats apart.
struct Result {
  static constexpr int64_t kStateFloats = sizeof(SoftmaxState) / sizeof(float);
  float* at;
  SoftmaxState& state() const { return *reinterpret_cast<SoftmaxState*>(at); }
  float* out() const { return at + kStateFloats; }
};

// How many pieces of kAttentionRun cover a number of positions or inputs.
int64_t piecesOf(int64_t count) { return (count + kAttentionRun - 1) / kAttentionRun; }

// Runs of a KV split; absent ones have null pointers.
constexpr int64_t kSplitRuns = kAttentionSplit / kAttentionRun;
using Runs = std::array<KvRun, kSplitRuns>;

// Data that all items of a call share.
struct Call {
  const AttentionArgs& args;
  const StepBatch& batch;
  const AttentionProducts& products;
  const SoftmaxKernels& softmax;
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
  // The positions of a KV split that the item's queries attend to, the first one rounded down to a run.
  int64_t firstRun(const AttentionItem& item, int64_t split) const {
    const int64_t first = std::max(split * kAttentionSplit, beginOf(item, 0));
    return first / kAttentionRun * kAttentionRun;
  }
  int64_t endPosition(const AttentionItem& item, int64_t split) const {
    return std::min((split + 1) * kAttentionSplit, endOf(item, queries(item) - 1));
  }
  // Addresses in the cache, as KvRunReader::place() gives them: of a run, and of the runs of the item's first KV split.
  KvRun place(const AttentionItem& item, int64_t kv_head, int64_t position) const {
    return cache.place(sequence(item).block_tables[args.kv.group], kv_head, position);
  }
  Runs placeFirst(const AttentionItem& item, int64_t kv_head) const {
    const int64_t begin = firstRun(item, item.split_begin), end = endPosition(item, item.split_begin);
    Runs runs;
    for (int64_t i = 0; i < piecesOf(end - begin); ++i) {
      runs[static_cast<size_t>(i)] = place(item, kv_head, begin + i * kAttentionRun);
    }
    return runs;
  }
  static int64_t panelsOf(int64_t columns) { return (columns + kPanelCols - 1) / kPanelCols; }

 private:
  int64_t row(const AttentionItem& item, int64_t i) const {
    return sequence(item).row_begin + item.row_begin + i / group;
  }
  int64_t column(int32_t kv_head, int64_t i) const { return (int64_t{kv_head} * group + i % group) * headSize(); }
};

// Floats from the scores of a run to those of the next. In bytes it is no multiple of 4096: a load whose address
// differs from that of a recent store by such a multiple waits for the store.
constexpr int64_t kScoreStride = int64_t{kAttentionTileRows + 3} * kAttentionRun;

// Scratch memory of a thread for one item.
struct ItemMemory {
  std::byte* queries;
  std::byte* cache;
  float* scores;  // of a tile and a KV split, then their softmax weights: see SoftmaxRows
  std::byte* packed_weights;
  std::byte* values;  // a copy of a run's values
  // The arguments `w` and `next` of the product with a run's keys: one address for each piece.
  const std::byte **keys, **next_keys;
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
    take(cache, kSplitRuns * call.cache.scratchBytes());
    take(scores, kSplitRuns * kScoreStride);
    take(packed_weights, call.products.tileBytes(kAttentionTileRows, kAttentionSplit));
    take(values, call.cache.valueBytes());
    take(keys, piecesOf(call.headSize()));
    take(next_keys, piecesOf(call.headSize()));
    take(tiles, queries_of_item);
    take(first, queries_of_item * call.resultFloats());
    take(later, queries_of_item * call.resultFloats());
    return bytes;
  }
};

class ItemRunner {
 public:
  ItemRunner(const Call& call, const AttentionItem& item, int32_t kv_head, const ItemMemory& memory)
      : call_(call), item_(item), kv_head_(kv_head), memory_(memory), queries_(call.queries(item)) {}

  // following: the runs of the first KV split of the item that this thread will most likely take next, for prefetching.
  void run(const Runs& following) {
    packQueries();
    for (int32_t split = item_.split_begin; split < item_.split_end; ++split) {
      runSplit(split, following);
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
  // A tile, and the part of a KV split that its queries attend to. The part begins with a whole run; a slot is a
  // position relative to it.
  struct TileSplit {
    const Tile& tile;
    Result results;  // of the tile's first query; those of the others follow
    const KvRun* runs;
    int64_t slots;                                               // up to the last one that a query attends to
    int64_t begin[kAttentionTileRows], end[kAttentionTileRows];  // the slots that each query attends to

    int64_t count() const { return piecesOf(slots); }  // of the runs
  };

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

  void runSplit(int32_t split, const Runs& following) {
    const int64_t split_begin = call_.firstRun(item_, split), split_end = call_.endPosition(item_, split);
    const std::span<const int32_t> blocks = call_.sequence(item_).block_tables[call_.args.kv.group];
    Runs runs;
    for (int64_t i = 0; i < piecesOf(split_end - split_begin); ++i) {
      runs[static_cast<size_t>(i)] =
          call_.cache.read(blocks, kv_head_, split_begin + i * kAttentionRun, call_.beginOf(item_, 0), split_end,
                           memory_.cache + i * call_.cache.scratchBytes());
    }
    const Runs next = nextOf(split, following);
    for (int64_t t = 0; t < tiles_; ++t) {
      const Tile& tile = memory_.tiles[t];
      const int64_t begin = std::max(split_begin, tile.firstPosition() / kAttentionRun * kAttentionRun);
      const int64_t end = std::min(split_end, tile.endPosition());
      if (begin >= end) {
        for (int64_t i = tile.first; i < tile.first + tile.count; ++i) {
          const Result r = result(split, i);
          call_.softmax.clear(r.state(), r.out(), call_.headSize());
        }
        continue;
      }
      TileSplit part{.tile = tile,
                     .results = result(split, tile.first),
                     .runs = runs.data() + (begin - split_begin) / kAttentionRun,
                     .slots = end - begin,
                     .begin = {},
                     .end = {}};
      for (int r = 0; r < tile.count; ++r) {
        part.begin[r] = tile.begin[r] - begin;
        part.end[r] = tile.end[r] - begin;
      }
      const Runs share = shareOf(next, t);
      score(part, share);
      weigh(part);
      sum(part, share);
    }
  }

  // The runs to prefetch while those of a KV split are read: for each, the run kSplitRuns later. Runs past the item's
  // end are replaced by those of the following item, because a last KV split of few runs would have no time to prefetch
  // them all. An item of fewer runs prefetches only the following item.
  Runs nextOf(int32_t split, const Runs& following) const {
    const int64_t item_begin = call_.firstRun(item_, item_.split_begin);
    const int64_t item_runs = piecesOf(call_.endPosition(item_, item_.split_end - 1) - item_begin);
    const int64_t begin = call_.firstRun(item_, split);
    Runs next;
    for (int64_t i = 0; i < piecesOf(call_.endPosition(item_, split) - begin); ++i) {
      const int64_t run = (begin - item_begin) / kAttentionRun + i + std::min(kSplitRuns, item_runs);
      next[static_cast<size_t>(i)] = run < item_runs ? call_.place(item_, kv_head_, item_begin + run * kAttentionRun)
                                                     : following[static_cast<size_t>(run - item_runs)];
    }
    return next;
  }

  // The runs of `next` that tile t prefetches, in the order in which it reads its own.
  Runs shareOf(const Runs& next, int64_t t) const {
    Runs share;
    for (int64_t run = t; run < kSplitRuns; run += tiles_) {
      share[static_cast<size_t>(run / tiles_)] = next[static_cast<size_t>(run)];
    }
    return share;
  }

  float* scoresOf(int64_t run) const { return memory_.scores + run * kScoreStride; }

  void setPieces(const std::byte* keys, const std::byte** pieces) const {
    const int64_t count = piecesOf(call_.headSize());
    for (int64_t i = 0; i < count; ++i) {
      pieces[i] = keys == nullptr ? nullptr : keys + i * call_.cache.keyPieceBytes();
    }
  }

  // next: keys to prefetch into L2.
  void score(const TileSplit& part, const Runs& next) {
    AttentionProduct scores{tile_configuration_};
    scores.x = part.tile.queries;
    scores.x_stride = call_.products.tileBytes(part.tile.count, kAttentionRun);
    scores.inputs = call_.headSize();
    scores.w = memory_.keys;
    scores.next = memory_.next_keys;
    scores.input_stride = call_.cache.keyStride();
    scores.y_stride = kAttentionRun;
    for (int64_t run = 0; run < part.count(); ++run) {
      setPieces(part.runs[run].keys, memory_.keys);
      setPieces(next[static_cast<size_t>(run)].keys, memory_.next_keys);
      scores.panels = Call::panelsOf(std::min<int64_t>(kAttentionRun, part.slots - run * kAttentionRun));
      scores.y = scoresOf(run);
      call_.products.run[part.tile.count](scores);
    }
  }

  void weigh(const TileSplit& part) {
    const AttentionScore& score = call_.args.score;
    const Tile& tile = part.tile;
    call_.softmax.weigh({.scores = memory_.scores,
                         .runs = part.count(),
                         .run_stride = kScoreStride,
                         .count = tile.count,
                         .begin = part.begin,
                         .end = part.end,
                         .scale = score.scale,
                         .softcap = score.softcap,
                         .slopes = score.slopes == nullptr ? nullptr : tile.slopes,
                         .states = part.results.at,
                         .stride = call_.resultFloats()});
  }

  // Packs the weights of rows [from, to) of a tile, from a run on.
  const void* packWeights(const TileSplit& part, int from, int to, int64_t first_run) const {
    std::byte* packed = memory_.packed_weights;
    for (int64_t run = first_run; run < part.count(); ++run) {
      const float* rows[kAttentionTileRows];
      for (int r = from; r < to; ++r) rows[r - from] = scoresOf(run) + r * kAttentionRun;
      call_.products.pack(rows, to - from, kAttentionRun, packed);
      packed += call_.products.tileBytes(to - from, kAttentionRun);
    }
    return memory_.packed_weights;
  }

  // next: values to prefetch into L2.
  void sum(const TileSplit& part, const Runs& next) {
    const std::byte *values[kSplitRuns], *next_values[kSplitRuns];
    for (int64_t run = 0; run < part.count(); ++run) {
      values[run] = part.runs[run].values;
      next_values[run] = next[static_cast<size_t>(run)].values;
    }
    AttentionProduct sums{tile_configuration_};
    sums.inputs = part.slots;
    sums.w = values;
    sums.input_stride = call_.cache.valueStride();
    sums.panels = Call::panelsOf(call_.headSize());
    sums.y = part.results.out();
    sums.y_stride = call_.resultFloats();
    sums.next = next_values;
    const Tile& tile = part.tile;
    if (!canSumTogether(part)) return sumApart(part, sums);
    sums.x_stride = call_.products.takesFloats() ? kScoreStride * static_cast<int64_t>(sizeof(float))
                                                 : call_.products.tileBytes(tile.count, kAttentionRun);
    sums.x = call_.products.takesFloats() ? memory_.scores : packWeights(part, 0, tile.count, 0);
    call_.products.run[tile.count](sums);
  }

  // Weight 0 times a value that a row does not attend to is 0, unless the value is infinite or NaN.
  bool canSumTogether(const TileSplit& part) const {
    const auto finite = [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end;) {
        const int64_t run = slot / kAttentionRun, first = run * kAttentionRun;
        const int64_t run_end = std::min(end, first + kAttentionRun);
        if (!call_.cache.finite(call_.softmax, part.runs[run], slot - first, run_end - first)) return false;
        slot = run_end;
      }
      return true;
    };
    const int64_t last_begin = part.begin[part.tile.count - 1], first_end = part.end[0];
    return finite(0, std::min(last_begin, part.slots)) && finite(std::max<int64_t>(0, first_end), part.slots);
  }

  // Multiplies rows in groups that attend to the same slots, and leaves out all other values: in the first run they are
  // replaced by zeros, later ones are not read.
  void sumApart(const TileSplit& part, AttentionProduct sums) {
    const Tile& tile = part.tile;
    const std::byte* const* values = sums.w;
    sums.next = nullptr;
    for (int r = 0; r < tile.count;) {
      int next_row = r + 1;
      while (next_row < tile.count && part.begin[next_row] == part.begin[r] && part.end[next_row] == part.end[r]) {
        ++next_row;
      }
      const int64_t end = std::clamp<int64_t>(part.end[r], 0, part.slots);
      const int64_t begin = std::clamp<int64_t>(part.begin[r], 0, end);
      const int64_t run = begin / kAttentionRun, first = run * kAttentionRun;
      const std::byte* attended[kSplitRuns] = {};
      std::copy(values + run, values + piecesOf(end), attended);
      if (first < begin) attended[0] = call_.cache.valuesFrom(part.runs[run], begin - first, memory_.values);
      sums.w = attended;
      sums.inputs = end - first;
      sums.x = packWeights(part, r, next_row, run);
      sums.x_stride = call_.products.tileBytes(next_row - r, kAttentionRun);
      sums.y = part.results.out() + r * call_.resultFloats();
      call_.products.run[next_row - r](sums);
      r = next_row;
    }
  }

  const Call& call_;
  const AttentionItem& item_;
  int32_t kv_head_;
  const ItemMemory& memory_;
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
            .softmax = *selectKernel(softmaxKernels(), workspace.isa).kernel,
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
    Runs following;
    if (task + threads < std::ssize(plan.items) * kv_heads) {
      const AttentionItem& next = plan.items[static_cast<size_t>((task + threads) / kv_heads)];
      following = call.placeFirst(next, (task + threads) % kv_heads);
    }
    ItemRunner(call, item, static_cast<int32_t>(task % kv_heads), own).run(following);
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
