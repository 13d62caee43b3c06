#include "kernels/attention/cpu.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "kernels/attention/fold_kernels.h"
#include "kernels/attention/kv_run.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {
namespace {

constexpr int64_t kLine = 64;
constexpr float kLog2E = 1.44269504f;

// Up to max_rows queries that go through the products together.
struct Tile {
  int count = 0;
  int64_t first = 0;              // query of the item
  int64_t last_position = 0;      // of its last query, the greatest
  const void* queries = nullptr;  // packed
  int64_t position[kMaxTileRows] = {};
};

// Where a query's result gathers.
struct Target {
  SoftmaxState* state;
  float* out;
};

int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// What a call's items have in common.
struct Call {
  const AttentionArgs& args;
  const StepBatch& batch;
  const PanelKernels& product;
  const FoldKernels& fold;
  KvRunReader cache;
  int64_t group;
  float* partials;  // [places][partialFloats()]

  int64_t headSize() const { return args.kv.head_size; }
  int64_t queries(const AttentionItem& item) const { return (item.row_end - item.row_begin) * group; }
  int64_t position(const AttentionItem& item, int64_t i) const {
    return int64_t{sequence(item).first_position} + item.row_begin + i / group;
  }
  const SequenceSpan& sequence(const AttentionItem& item) const {
    return batch.sequences[static_cast<size_t>(item.sequence)];
  }
  // Query i of an item: rows in order, the group's heads within a row.
  const float* query(const AttentionItem& item, int32_t kv_head, int64_t i) const {
    return args.q.data + row(item, i) * args.q.stride + column(kv_head, i);
  }
  float* out(const AttentionItem& item, int32_t kv_head, int64_t i) const {
    return args.out.data + row(item, i) * args.out.stride + column(kv_head, i);
  }
  // A partial result: its state, then its out.
  static constexpr int64_t kStateFloats = sizeof(SoftmaxState) / sizeof(float);
  int64_t partialFloats() const { return kStateFloats + roundUp(headSize(), kPanelCols); }
  Target partial(int64_t place) const {
    float* at = partials + place * partialFloats();
    return {reinterpret_cast<SoftmaxState*>(at), at + kStateFloats};
  }
  // splits: of the whole row block.
  Target partial(const AttentionItem& item, int64_t splits, int32_t kv_head, int64_t split, int64_t i) const {
    return partial(item.partial + (kv_head * splits + split) * queries(item) + i);
  }

 private:
  int64_t row(const AttentionItem& item, int64_t i) const {
    return sequence(item).row_begin + item.row_begin + i / group;
  }
  int64_t column(int32_t kv_head, int64_t i) const { return (int64_t{kv_head} * group + i % group) * headSize(); }
};

// A thread's memory for one item.
struct ItemMemory {
  std::byte* queries;
  std::byte* cache;
  float* weights;  // [kMaxTileRows][kAttentionRun]
  std::byte* packed_weights;
  Tile* tiles;
  SoftmaxState* states;
  float* later;  // partial results of a later stretch

  // Returns the bytes; memory may be null to learn them.
  size_t lay(const Call& call, int64_t queries_of_item, std::byte* memory) {
    size_t bytes = 0;
    const auto take = [&](auto*& pointer, int64_t count) {
      using T = std::remove_reference_t<decltype(*pointer)>;
      pointer = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + bytes);
      bytes += static_cast<size_t>(roundUp(count * static_cast<int64_t>(sizeof(T)), 64));
    };
    // A tile has a row at least, and is padded to a cache line.
    take(queries, queries_of_item * roundUp(call.headSize(), 4) * call.product.element_bytes + queries_of_item * 64);
    take(cache, call.cache.scratchBytes());
    take(weights, int64_t{kMaxTileRows} * kAttentionRun);
    take(packed_weights, int64_t{kMaxTileRows} * kAttentionRun * call.product.element_bytes);
    take(tiles, queries_of_item);
    take(states, queries_of_item);
    take(later, queries_of_item * call.partialFloats());
    return bytes;
  }
};

class ItemRunner {
 public:
  ItemRunner(const Call& call, const AttentionItem& item, int32_t splits, int32_t kv_head, const ItemMemory& memory)
      : call_(call), item_(item), splits_(splits), kv_head_(kv_head), memory_(memory), queries_(call.queries(item)) {}

  void run() {
    packQueries();
    for (int32_t split = item_.split_begin; split < item_.split_end; ++split) {
      runSplit(split);
      if (item_.partial >= 0 || split == 0) continue;
      for (int64_t i = firstOf(split); i < queries_; ++i) {
        const Target later = target(split, i), all = target(0, i);
        call_.fold.merge(*later.state, later.out, *all.state, all.out, call_.headSize());
      }
    }
    if (item_.partial >= 0) return;
    for (int64_t i = 0; i < queries_; ++i) {
      const Target all = target(0, i);
      call_.fold.finish(*all.state, all.out, call_.headSize());
    }
  }

 private:
  // The first query that attends to anything of a stretch.
  int64_t firstOf(int32_t split) const {
    const int64_t rows = int64_t{split} * kAttentionSplit - call_.position(item_, 0);
    return std::max<int64_t>(0, rows) * call_.group;
  }
  Target target(int32_t split, int64_t i) const {
    if (item_.partial >= 0) return call_.partial(item_, splits_, kv_head_, split, i);
    if (split == 0) return {memory_.states + i, call_.out(item_, kv_head_, i)};
    float* at = memory_.later + i * call_.partialFloats();
    return {reinterpret_cast<SoftmaxState*>(at), at + Call::kStateFloats};
  }

  void packQueries() {
    tiles_ = (queries_ + call_.product.max_rows - 1) / call_.product.max_rows;
    std::byte* packed = memory_.queries;
    for (int64_t t = 0; t < tiles_; ++t) {
      Tile& tile = *new (memory_.tiles + t) Tile;
      tile.first = queries_ * t / tiles_;
      tile.count = static_cast<int>(queries_ * (t + 1) / tiles_ - tile.first);
      const float* rows[kMaxTileRows];
      for (int r = 0; r < tile.count; ++r) {
        rows[r] = call_.query(item_, kv_head_, tile.first + r);
        tile.position[r] = call_.position(item_, tile.first + r);
      }
      tile.last_position = tile.position[tile.count - 1];
      tile.queries = packed;
      call_.product.pack(rows, tile.count, call_.headSize(), packed);
      packed += roundUp(tileSize(tile.count, call_.headSize()) * call_.product.element_bytes, 64);
    }
  }

  void runSplit(int32_t split) {
    const int64_t begin = int64_t{split} * kAttentionSplit;
    const int64_t end = std::min(begin + kAttentionSplit, call_.position(item_, queries_ - 1) + 1);
    // Of queries before the stretch, which share a tile with later ones, too.
    for (int64_t i = 0; i < queries_; ++i) {
      const Target t = target(split, i);
      call_.fold.start(*t.state, t.out, call_.headSize());
    }
    const int64_t item_end =
        std::min<int64_t>(call_.position(item_, queries_ - 1) + 1, int64_t{item_.split_end} * kAttentionSplit);
    for (int64_t run = begin; run < end; run += kAttentionRun) {
      // With more tiles the products take longer than memory.
      next_ = {};
      const int64_t next = run + kAttentionRun;
      if (tiles_ == 1 && next < item_end) {
        next_ = call_.cache.place(call_.sequence(item_).block_table, kv_head_, next);
      }
      const KvRun kv = call_.cache.read(call_.sequence(item_).block_table, kv_head_, run, end, memory_.cache);
      for (int64_t t = 0; t < tiles_; ++t) {
        if (memory_.tiles[t].last_position >= run) runTile(memory_.tiles[t], split, run, end, kv);
      }
    }
  }

  void runTile(const Tile& tile, int32_t split, int64_t run, int64_t end, const KvRun& kv) {
    const int64_t slots = std::min<int64_t>(kAttentionRun, tile.last_position - run + 1);
    float* rows[kMaxTileRows];
    float* out[kMaxTileRows];
    for (int r = 0; r < tile.count; ++r) rows[r] = memory_.weights + r * kAttentionRun;
    PanelArgs product;
    product.x = tile.queries;
    product.inputs = call_.headSize();
    product.panels = kv.keys;
    product.panel_stride = kPanelCols * call_.cache.unitBytes();
    product.input_stride = kv.key_stride;
    product.y = rows;
    product.cols = slots;
    const int64_t lines = next_.bytes / kLine;
    multiply(product, tile.count, next_.keys, lines);
    // A softmax takes about as long as an eighth of its row's products.
    const int64_t lines_of_row = next_.values == nullptr ? 0 : lines / (2 * kMaxTileRows);
    for (int r = 0; r < tile.count; ++r) {
      for (int64_t i = r * lines_of_row; i < (r + 1) * lines_of_row; ++i) {
        __builtin_prefetch(next_.values + i * kLine, 0, 2);
      }
      const Target t = target(split, tile.first + r);
      out[r] = t.out;
      call_.fold.fold(rows[r], tile.position[r] - run + 1, call_.args.scale * kLog2E, *t.state, t.out,
                      call_.headSize());
    }
    call_.product.pack(rows, tile.count, slots, memory_.packed_weights);
    product.x = memory_.packed_weights;
    product.panels = kv.values;
    product.input_stride = kv.value_stride;
    product.y = out;
    product.cols = call_.headSize();
    product.accumulate = true;
    product.inputs = slots;
    const bool cut = kv.last_values != nullptr && run + slots == end;
    if (cut) product.inputs = slots / 4 * 4;
    if (product.inputs > 0) {
      const int64_t fetched = tile.count * lines_of_row;
      multiply(product, tile.count, next_.values == nullptr ? nullptr : next_.values + fetched * kLine,
               lines - fetched);
    }
    if (!cut) return;
    product.x = memory_.packed_weights + product.inputs * tile.count * call_.product.element_bytes;
    product.panels = kv.last_values;
    product.inputs = slots % 4;
    call_.product.run[tile.count](product);
  }

  // Meanwhile so many lines from `next` on are prefetched, evenly: too many at once would hold up what is needed first.
  void multiply(const PanelArgs& whole, int rows, const std::byte* next, int64_t lines) const {
    if (next == nullptr) return call_.product.run[rows](whole);
    constexpr int64_t kCols = kPanelsInTurn * kPanelCols;
    const int64_t quads = whole.inputs / 4 * call_.product.passes[rows];
    float* y[kMaxTileRows];
    PanelArgs part = whole;
    part.y = y;
    for (int64_t col = 0, fetched = 0; col < whole.cols; col += kCols) {
      for (int r = 0; r < rows; ++r) y[r] = whole.y[r] + col;
      part.panels = static_cast<const std::byte*>(whole.panels) + col / kPanelCols * whole.panel_stride;
      part.cols = std::min(kCols, whole.cols - col);
      part.next = next + fetched * kLine;
      const int64_t left = (lines - fetched) * kCols / roundUp(whole.cols - col, kCols);
      part.next_lines = quads == 0 ? 0 : static_cast<int>((left + quads - 1) / quads);
      call_.product.run[rows](part);
      fetched = std::min(lines, fetched + part.next_lines * quads);
    }
  }

  const Call& call_;
  const AttentionItem& item_;
  int32_t splits_;
  int32_t kv_head_;
  const ItemMemory& memory_;
  int64_t queries_;
  int64_t tiles_ = 0;
  KvRunReader::Place next_;  // of the run after this one, in generation
};

// Merges the stretches of a row block that items shared.
void mergeShared(const Call& call, const AttentionItem& block, int32_t kv_head) {
  const int64_t head_size = call.headSize();
  for (int64_t i = 0; i < call.queries(block); ++i) {
    float* out = call.out(block, kv_head, i);
    const Target first = call.partial(block, block.split_end, kv_head, 0, i);
    SoftmaxState state = *first.state;
    std::copy(first.out, first.out + head_size, out);
    for (int32_t split = 1; split < block.split_end; ++split) {
      if (int64_t{split} * kAttentionSplit > call.position(block, i)) break;
      const Target later = call.partial(block, block.split_end, kv_head, split, i);
      call.fold.merge(*later.state, later.out, state, out, head_size);
    }
    call.fold.finish(state, out, head_size);
  }
}
}  // namespace

void attentionCpu(const AttentionArgs& args, const StepBatch& batch, CpuWorkspace& workspace, AttentionPlan& plan) {
  assert(args.num_heads % args.kv.num_kv_heads == 0);
  const int32_t kv_heads = args.kv.num_kv_heads, group = args.num_heads / kv_heads, threads = workspace.pool.size();
  if (plan.group != group || plan.num_kv_heads != kv_heads) planAttention(batch, group, kv_heads, threads, plan);

  const DType dtype = args.kv.dtype;
  Call call{.args = args,
            .batch = batch,
            .product = *workspace.select(Op::kAttention, quadPanelKernels(dtype), dtype),
            .fold = *selectKernel(foldKernels(), workspace.isa).kernel,
            .cache = KvRunReader(args.kv),
            .group = group,
            .partials = nullptr};
  call.partials =
      workspace.shared[0].reserve<float>(static_cast<size_t>(attentionPartials(threads) * call.partialFloats()));
  const int64_t most_queries = int64_t{attentionRowsPerItem(group)} * group;
  ItemMemory memory;
  const size_t bytes = memory.lay(call, most_queries, nullptr);
  for (Scratch& scratch : workspace.thread) scratch.reserve<std::byte>(bytes);

  workspace.pool.run(std::ssize(plan.items) * kv_heads, [&](int64_t task, int thread) {
    const AttentionItem& item = plan.items[static_cast<size_t>(task / kv_heads)];
    ItemMemory own;
    own.lay(call, most_queries, workspace.thread[static_cast<size_t>(thread)].reserve<std::byte>(0));
    const int64_t end = call.position(item, call.queries(item) - 1) + 1;
    const auto splits = static_cast<int32_t>((end + kAttentionSplit - 1) / kAttentionSplit);
    ItemRunner(call, item, splits, static_cast<int32_t>(task % kv_heads), own).run();
  });
  workspace.pool.run(std::ssize(plan.shared) * kv_heads, [&](int64_t task, int) {
    mergeShared(call, plan.shared[static_cast<size_t>(task / kv_heads)], static_cast<int32_t>(task % kv_heads));
  });
}

std::vector<Variant> attentionVariants() {
  std::vector<Variant> variants;
  for (const DType dtype : panelFormats()) {
    if (isQuantised(dtype)) continue;  // weights are, keys and values are not
    const auto some = variantsOf(Op::kAttention, quadPanelKernels(dtype), dtype);
    variants.insert(variants.end(), some.begin(), some.end());
  }
  return variants;
}

}  // namespace chorus
