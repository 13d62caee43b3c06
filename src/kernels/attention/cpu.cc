#include "kernels/attention/cpu.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <new>

#include "kernels/attention/fold_kernels.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {
namespace {

// Queries of an item share each gathered run of keys; their state, packed rows and scores stay in L2.
constexpr int32_t kQueriesPerItem = 96;

void makePlan(const StepBatch& batch, int32_t rows_per_item, AttentionPlan& plan) {
  plan.rows_per_item = rows_per_item;
  plan.items.clear();
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    for (int32_t row = 0; row < batch.sequences[s].num_rows; row += rows_per_item) {
      const int32_t end = std::min(row + rows_per_item, batch.sequences[s].num_rows);
      plan.items.push_back({static_cast<int32_t>(s), row, end});
    }
  }
  const auto cost = [&](const AttentionItem& item) {
    return int64_t{batch.sequences[static_cast<size_t>(item.sequence)].first_position + item.row_end} *
           (item.row_end - item.row_begin);
  };
  std::sort(plan.items.begin(), plan.items.end(),
            [&](const AttentionItem& a, const AttentionItem& b) { return cost(a) > cost(b); });
}

// Up to max_rows queries that go through the products together.
struct Tile {
  int count = 0;
  int64_t last_position = 0;       // of its last query, the greatest
  const float* queries = nullptr;  // packed
  float* out[kMaxTileRows] = {};
  int64_t position[kMaxTileRows] = {};
};

// A thread's memory for one item.
struct ItemScratch {
  int64_t max_queries;
  int64_t value_stride;
  size_t queries_floats, keys_floats, values_floats;

  ItemScratch(int64_t head_size, int64_t queries)
      : max_queries(queries),
        value_stride((head_size + 15) / 16 * 16),
        queries_floats(static_cast<size_t>(queries * ((head_size + 3) / 4 * 4) + 15) / 16 * 16),
        keys_floats(static_cast<size_t>(head_size * kAttentionRun)),
        values_floats(static_cast<size_t>(value_stride * kAttentionRun)) {}

  size_t floats() const {
    return queries_floats + keys_floats + values_floats + 2 * kMaxTileRows * kAttentionRun +
           static_cast<size_t>(max_queries) * (sizeof(Tile) + sizeof(SoftmaxState)) / sizeof(float);
  }
};

class ItemRunner {
 public:
  ItemRunner(const AttentionArgs& args, const StepBatch& batch, const FoldKernels& fold, Isa isa,
             const ItemScratch& layout)
      : args_(args),
        batch_(batch),
        layout_(layout),
        fold_(fold),
        product_(panelKernels(isa, DType::kFloat32)),
        group_(args.num_heads / args.kv.num_kv_heads) {}

  void run(const AttentionItem& item, int32_t kv_head, float* scratch) const;

 private:
  const float* query(const AttentionItem& item, int32_t kv_head, int64_t i) const {
    return args_.q.data + row(item, i) * args_.q.stride + column(kv_head, i);
  }
  float* out(const AttentionItem& item, int32_t kv_head, int64_t i) const {
    return args_.out.data + row(item, i) * args_.out.stride + column(kv_head, i);
  }
  // Query i of an item: rows in order, the group's heads within a row.
  int64_t row(const AttentionItem& item, int64_t i) const {
    return batch_.sequences[static_cast<size_t>(item.sequence)].row_begin + item.row_begin + i / group_;
  }
  int64_t column(int32_t kv_head, int64_t i) const {
    return (int64_t{kv_head} * group_ + i % group_) * args_.kv.head_size;
  }

  const AttentionArgs& args_;
  const StepBatch& batch_;
  const ItemScratch& layout_;
  const FoldKernels& fold_;
  const PanelKernels& product_;
  int64_t group_;
};

void ItemRunner::run(const AttentionItem& item, int32_t kv_head, float* scratch) const {
  const SequenceSpan& sequence = batch_.sequences[static_cast<size_t>(item.sequence)];
  const int64_t head_size = args_.kv.head_size;
  const int64_t queries = (item.row_end - item.row_begin) * group_;
  const int64_t end = int64_t{sequence.first_position} + item.row_end;
  const int64_t tiles = (queries + product_.max_rows - 1) / product_.max_rows;
  float* packed = scratch;
  float* keys = packed + layout_.queries_floats;
  float* values = keys + layout_.keys_floats;
  float* weights = values + layout_.values_floats;
  float* packed_weights = weights + kMaxTileRows * kAttentionRun;

  auto* tile_list = reinterpret_cast<Tile*>(packed_weights + kMaxTileRows * kAttentionRun);
  auto* states = reinterpret_cast<SoftmaxState*>(tile_list + layout_.max_queries);
  for (int64_t t = 0; t < tiles; ++t) {
    Tile& tile = *new (tile_list + t) Tile;
    const int64_t first = queries * t / tiles;
    tile.count = static_cast<int>(queries * (t + 1) / tiles - first);
    const float* rows[kMaxTileRows];
    for (int r = 0; r < tile.count; ++r) {
      rows[r] = query(item, kv_head, first + r);
      tile.out[r] = out(item, kv_head, first + r);
      tile.position[r] = int64_t{sequence.first_position} + item.row_begin + (first + r) / group_;
      states[first + r] = {-std::numeric_limits<float>::infinity(), 0.0f};
      std::fill(tile.out[r], tile.out[r] + head_size, 0.0f);
    }
    tile.last_position = tile.position[tile.count - 1];
    tile.queries = packed;
    packTile(rows, tile.count, head_size, packed);
    packed += tileSize(tile.count, head_size);
  }

  for (int64_t run = 0; run < end; run += kAttentionRun) {
    fold_.gather_keys(args_.kv, sequence.block_table, kv_head, run, end, keys);
    fold_.gather_values(args_.kv, sequence.block_table, kv_head, run, end, layout_.value_stride, values);
    for (int64_t t = 0; t < tiles; ++t) {
      const Tile& tile = tile_list[t];
      if (tile.last_position < run) continue;
      float* rows[kMaxTileRows];
      for (int r = 0; r < tile.count; ++r) rows[r] = weights + r * kAttentionRun;
      PanelArgs product;
      product.x = tile.queries;
      product.inputs = head_size;
      product.panels = keys;
      product.panel_stride = 16 * sizeof(float);
      product.input_stride = kAttentionRun * sizeof(float);
      product.y = rows;
      product.cols = kAttentionRun;
      product_.run[tile.count](product);
      const int64_t first = queries * t / tiles;
      for (int r = 0; r < tile.count; ++r) {
        fold_.fold(rows[r], tile.position[r] - run + 1, args_.scale, states[first + r], tile.out[r], head_size);
      }
      packTile(rows, tile.count, kAttentionRun, packed_weights);
      product.x = packed_weights;
      product.inputs = std::min<int64_t>(kAttentionRun, tile.last_position - run + 1);
      product.panels = values;
      product.input_stride = layout_.value_stride * static_cast<int64_t>(sizeof(float));
      product.y = tile.out;
      product.cols = head_size;
      product.accumulate = true;
      product_.run[tile.count](product);
    }
  }
  for (int64_t i = 0; i < queries; ++i) fold_.finish(states[i], out(item, kv_head, i), head_size);
}
}  // namespace

void attentionCpu(const AttentionArgs& args, const StepBatch& batch, CpuWorkspace& workspace, AttentionPlan& plan) {
  assert(args.num_heads % args.kv.num_kv_heads == 0);
  const int32_t group = args.num_heads / args.kv.num_kv_heads;
  const int32_t rows_per_item = std::max(1, kQueriesPerItem / group);
  if (plan.rows_per_item != rows_per_item) makePlan(batch, rows_per_item, plan);
  const ItemScratch layout(args.kv.head_size, int64_t{rows_per_item} * group);
  for (Scratch& scratch : workspace.thread) scratch.reserve<float>(layout.floats());
  const ItemRunner runner(args, batch, *workspace.select(Op::kAttention, foldKernels()), workspace.isa, layout);
  const auto items = static_cast<int64_t>(plan.items.size());
  workspace.pool.run(items * args.kv.num_kv_heads, [&](int64_t task, int thread) {
    runner.run(plan.items[static_cast<size_t>(task / args.kv.num_kv_heads)],
               static_cast<int32_t>(task % args.kv.num_kv_heads),
               workspace.thread[static_cast<size_t>(thread)].reserve<float>(0));
  });
}

std::vector<Variant> attentionVariants() { return variantsOf(Op::kAttention, foldKernels()); }

}  // namespace chorus
