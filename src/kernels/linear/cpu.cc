#include "kernels/linear/cpu.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/linear/fixed_point.h"
#include "kernels/linear/line_runs.h"
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

// A block of rows is multiplied by this many inputs of some panels before it continues with the next panels, or by all
// where PanelKernels::wholeRows. Products are split at multiples of this number.
constexpr int64_t kInputBlock = 1024;
static_assert(kInputBlock % kScaleRun == 0 && kInputBlock % kFixedRun == 0);

// Sets what depends on the format of the weights only.
void setFormat(const PackedWeight& weight, PanelArgs& panel) {
  panel.input_stride = packedInputStride(weight.dtype);
  panel.group = packedGroup(weight.format());
  panel.scale_dtype = weight.scale_dtype;
}

// Data that all tasks of one call share.
struct Call {
  const LinearArgs& args;
  const LinearPlan& plan;
  Isa isa;
  std::byte* x = nullptr;  // packed rows of the weights
  std::byte* t = nullptr;  // scaled products with A, packed by adapter tile and LoRA term

  const float* xRow(int64_t r) const { return args.x.row(r); }
  float* yRow(int64_t r) const { return args.y.row(r); }
  const WeightRows& weightOf(int32_t index) const { return plan.weights[static_cast<size_t>(index)]; }
  const int32_t* rowsOf(const RowTile& tile) const { return plan.rows.data() + tile.first_row; }
  std::byte* packed(const WeightRows& weight, const RowTile& tile) const {
    return x + weight.x + (tile.first_row - weight.first_row) * weight.row_bytes;
  }

  const LoraTerm& partOf(const AdapterTask& task) const {
    return plan.adapter_tiles[static_cast<size_t>(task.tile)].group->parts[static_cast<size_t>(task.part)];
  }

  void packRows(int64_t tile, int64_t begin, int64_t end) const;
  void multiplyA(const AdapterTask& task, const AdapterTask* following, std::byte* packed_rows,
                 const AdapterTile*& packed_tile, TileConfiguration& tiles) const;
  // Returns the index in LinearPlan::rows of the first row that the products of `tile` with A read. The tile must read
  // a packed RowTile (AdapterTile::source >= 0).
  int32_t sourceRow(const AdapterTile& tile) const {
    return plan.tiles[static_cast<size_t>(tile.source)].first_row + tile.source_row;
  }
  void storeBlockTerm(const AdapterTile& tile, int64_t panel, int64_t panels, const float* const* products,
                      std::byte* t_tile) const;
  void multiplyTasks(int64_t begin, int64_t end, ScratchMemory& scratch) const;
  void multiplyPanels(const PanelTask& task, ScratchMemory& scratch, TileConfiguration& tiles) const;
  void multiplyBlock(const RowBlock& block, int64_t panel_begin, int64_t cols, ScratchMemory& scratch,
                     TileConfiguration& tiles) const;
  void multiplyWeight(const RowBlock& block, const PanelTask& task, TileConfiguration& tiles) const;
  template <typename F>
  void forEachTerm(const RowBlock& block, int64_t begin, int64_t end, F&& fn) const;
  int64_t panelsPerTerms(const RowBlock& block, const PanelTask& task) const;
  void addTermLines(const RowBlock& block, int64_t begin, int64_t end, LineRuns& lines) const;
  void addTerms(const RowBlock& block, int64_t begin, int64_t end, TileConfiguration& tiles) const;
  void addParts(const AdapterTile& tile, int64_t col_begin, int64_t col_end, TileConfiguration& tiles) const;
};

// Packs inputs [begin, end) of a tile; begin is a multiple of kInputBlock.
void Call::packRows(int64_t index, int64_t begin, int64_t end) const {
  const RowTile& tile = plan.tiles[static_cast<size_t>(index)];
  const WeightRows& weight = weightOf(tile.weight);
  if (!weight.packs()) return;
  const int32_t* tile_rows = rowsOf(tile);
  const int count = tile.packedRows(weight);
  const float* rows[kMaxTileRows];
  for (int r = 0; r < count; ++r) rows[r] = xRow(tile_rows[std::min(r, tile.rows - 1)]) + begin;
  weight.kernels->pack(rows, count, end - begin, packed(weight, tile) + count * weight.kernels->bytesBefore(begin));
}

// following: the thread's next task; null if there is none. packed_tile: the tile that `packed_rows` currently holds.
// Consecutive tasks of a thread often have the same tile, which is then packed only once.
void Call::multiplyA(const AdapterTask& task, const AdapterTask* following, std::byte* packed_rows,
                     const AdapterTile*& packed_tile, TileConfiguration& tiles) const {
  const AdapterTile& tile = plan.adapter_tiles[static_cast<size_t>(task.tile)];
  const LoraTerm& part = partOf(task);
  const PackedWeight& a = part.a;
  assert(a.in == args.x.cols && a.format() == part.b.format());
  const PanelKernels& part_kernels = panelKernels(isa, a.format());
  const int32_t* tile_rows = plan.adapter_rows.data() + tile.first_row;
  float product[kMaxTileRows][kPanelCols];
  float* y[kMaxTileRows];
  for (int r = 0; r < kMaxTileRows; ++r) y[r] = product[r];
  const float* rows[kMaxTileRows] = {};
  for (int r = 0; r < tile.rows; ++r) rows[r] = xRow(tile_rows[r]);
  PanelArgs panel{tiles};
  panel.x = rows[0];
  int count = tile.rows;
  if (tile.source >= 0) {
    const RowTile& source = plan.tiles[static_cast<size_t>(tile.source)];
    const WeightRows& weight = weightOf(source.weight);
    panel.x_stride = source.packedRows(weight) * weight.kernels->bytesBefore(kStrideInputs);
    panel.x = packed(weight, source) + tile.source_row * weight.kernels->bytesBefore(kStrideInputs);
    count = tile.source_rows;
  } else if (tile.rows > 1 || !part_kernels.takesRows()) {
    if (packed_tile != &tile) part_kernels.pack(rows, tile.rows, a.in, packed_rows);
    packed_tile = &tile;
    panel.x = packed_rows;
  }
  panel.inputs = a.in;
  panel.panels = static_cast<const std::byte*>(a.data) + task.panel * panelBytes(a.format(), a.in);
  setFormat(a, panel);
  panel.y = y;
  panel.cols = kPanelCols;
  panel.stream = true;
  // The hardware prefetchers follow a panel, but begin late at the next one.
  constexpr int64_t kFirstLines = 64;
  LineRuns first_lines;
  if (following != nullptr) {
    const PackedWeight& next = partOf(*following).a;
    const int64_t bytes = panelBytes(next.format(), next.in);
    first_lines.add(static_cast<const std::byte*>(next.data) + following->panel * bytes,
                    std::min(bytes / 64, kFirstLines));
  }
  LineQueue ahead = first_lines.queue(a.in / 4);
  panel.ahead = &ahead;
  assert(part_kernels.run[count] != nullptr);
  part_kernels.run[count](panel);
  const int64_t rank = std::min<int64_t>(kPanelCols, a.out - task.panel * kPanelCols);  // of this panel
  for (int r = 0; r < tile.rows; ++r) {
    // The rows read from the source may include rows of other groups, whose products are skipped here.
    const int at = tile.source < 0 ? r : plan.place[static_cast<size_t>(tile_rows[r])] - sourceRow(tile);
    for (float& value : product[at]) value *= part.scale;
    // The columns past the rank are products with zeros: NaN if an input is not finite. B may have zeros there too.
    std::fill(product[at] + rank, product[at] + kPanelCols, 0.0f);
    rows[r] = product[at];
  }
  std::byte* part_t = t + task.t * static_cast<int64_t>(sizeof(float));
  if (tile.in_block) return storeBlockTerm(tile, task.panel, (a.out + kPanelCols - 1) / kPanelCols, rows, part_t);
  part_kernels.pack(rows, tile.rows, kPanelCols,
                    part_t + task.panel * kPanelCols * tile.rows * part_kernels.element_bytes);
}

// Packs a tile's products with one panel of A into BlockTerm::t.
//   - panels: number of panels of the term's A.
//   - products: one pointer per row of the tile, to kPanelCols scaled products.
//   - t_tile: the start of BlockTerm::t. A row of it holds the products with panels 2i and 2i + 1 next to each other.
//     If the number of panels is odd, the place of the missing panel is set to zero.
//   - The rows of the source that are not in the tile are set to zero.
void Call::storeBlockTerm(const AdapterTile& tile, int64_t panel, int64_t panels, const float* const* products,
                          std::byte* t_tile) const {
  const RowTile& source = plan.tiles[static_cast<size_t>(tile.source)];
  const WeightRows& weight = weightOf(source.weight);
  const int64_t packed_rows = source.packedRows(weight), row_bytes = weight.kernels->bytesBefore(kPanelCols);
  std::byte values[kMaxTileRows * kPanelCols * sizeof(float)];
  weight.kernels->pack(products, tile.rows, kPanelCols, values);
  std::byte* at = t_tile + (panel / 2 * packed_rows * 2 + panel % 2) * row_bytes;
  const auto cleared = static_cast<size_t>(panel % 2 == 0 && panel + 1 == panels ? 2 * row_bytes : row_bytes);
  for (int64_t r = 0; r < packed_rows; ++r) std::memset(at + r * 2 * row_bytes, 0, cleared);
  const int32_t* tile_rows = plan.adapter_rows.data() + tile.first_row;
  for (int r = 0; r < tile.rows; ++r) {
    const int64_t row = plan.place[static_cast<size_t>(tile_rows[r])] - source.first_row;
    std::memcpy(at + row * 2 * row_bytes, values + r * row_bytes, static_cast<size_t>(row_bytes));
  }
}

// Multiplies the rows of a block by the panels of a task, and adds the LoRA terms.
void Call::multiplyWeight(const RowBlock& block, const PanelTask& task, TileConfiguration& tile_configuration) const {
  const WeightRows& weight = weightOf(block.weight);
  const PanelKernels& kernels = *weight.kernels;
  const PackedWeight& w = weight.weight;
  const int32_t tiles = block.tile_end - block.tile_begin;
  const WeightFormat format = w.format();
  const int64_t stride = panelBytes(format, w.in);
  const auto* data = static_cast<const std::byte*>(w.data) + task.begin * stride;
  const int64_t panels = task.end - task.begin;
  const int64_t stretch = panelsPerTerms(block, task);
  // A single tile streams through many panels at once. Several tiles take a few panels in turn and share a block of
  // inputs.
  const int64_t panels_in_turn = tiles == 1 ? stretch : kPanelsInTurn;
  const int64_t input_block = tiles == 1 || kernels.wholeRows() ? w.in : kInputBlock;
  if (w.in == 0) return addTerms(block, task.begin, task.end, tile_configuration);
  float* y[kMaxTileRows];
  PanelArgs panel{tile_configuration};
  panel.panel_stride = stride;
  setFormat(w, panel);
  panel.y = y;
  panel.stream = tiles == 1;
  LineRuns term_lines, runs;
  for (int64_t i = 0; i < w.in; i += input_block) {
    const std::byte* slab = data + panelBytes(format, i);
    const bool last_slab = i + input_block >= w.in;
    panel.inputs = std::min(input_block, w.in - i);
    panel.accumulate = i > 0;
    for (int64_t first = 0; first < panels; first += stretch) {
      const int64_t stretch_end = std::min(panels, first + stretch);
      term_lines.clear();
      if (last_slab) addTermLines(block, task.begin + first, task.begin + stretch_end, term_lines);
      LineShares shares_of_terms(term_lines, ceilDivide(stretch_end - first, panels_in_turn));
      for (int64_t p = first; p < stretch_end; p += panels_in_turn) {
        const int64_t some = std::min(panels_in_turn, stretch_end - p);
        panel.panels = slab + p * stride;
        panel.cols = std::min(some * kPanelCols, w.out - (task.begin + p) * kPanelCols);
        runs.clear();
        // At the end of a task, prefetches its neighbours, because they are most likely the next panels to be used.
        const bool last = p + some >= panels, end = last && last_slab;
        if (tiles > 1 && !(end && task.end >= weight.panels())) {
          const std::byte* following = end    ? data + panels * stride
                                       : last ? data + panelBytes(format, i + input_block)
                                              : slab + (p + some) * stride;
          const int64_t lines = panelBytes(format, end ? std::min(input_block, w.in) : panel.inputs) / 64;
          for (int64_t n = 0; n < kPanelsInTurn; ++n) runs.add(following + n * stride, lines);
        }
        shares_of_terms.addShare(runs);
        int64_t steps = 0;
        for (int32_t t = block.tile_begin; t < block.tile_end; ++t) {
          const int passes = kernels.passes[plan.tiles[static_cast<size_t>(t)].rows];
          steps += panel.inputs / 4 * passes * ceilDivide(some, kPanelsInTurn);
        }
        LineQueue ahead = runs.queue(steps);
        panel.ahead = &ahead;
        for (int32_t t = 0; t < tiles; ++t) {
          const RowTile& tile = plan.tiles[static_cast<size_t>(block.tile_begin + t)];
          const int32_t* rows = rowsOf(tile);
          for (int r = 0; r < tile.rows; ++r) y[r] = yRow(rows[r]) + (task.begin + p) * kPanelCols;
          const auto* x_tile =
              weight.packs() ? packed(weight, tile) : reinterpret_cast<const std::byte*>(xRow(rows[0]));
          panel.x = x_tile + tile.rows * kernels.bytesBefore(i);
          kernels.run[tile.rows](panel);
        }
      }
      if (last_slab) addTerms(block, task.begin + first, task.begin + stretch_end, tile_configuration);
    }
  }
}

// Multiplies the rows of a block by the panels from panel_begin on, and adds the terms that are BlockTerms.
void Call::multiplyBlock(const RowBlock& block, int64_t panel_begin, int64_t cols, ScratchMemory& scratch,
                         TileConfiguration& tiles) const {
  const WeightRows& weight = weightOf(block.weight);
  const PackedWeight& w = weight.weight;
  const WeightFormat format = w.format();
  const RowTile& first = plan.tiles[static_cast<size_t>(block.tile_begin)];
  const RowTile& last = plan.tiles[static_cast<size_t>(block.tile_end - 1)];
  float* y[kBlockRows];
  BlockArgs b{tiles};
  b.rows = last.first_row + last.rows - first.first_row;
  for (int r = 0; r < b.rows; ++r) y[r] = yRow(rowsOf(first)[r]) + panel_begin * kPanelCols;
  b.x = packed(weight, first);
  b.tile_stride = kBlockTileRows * weight.row_bytes;
  b.inputs = w.in;
  b.panel_stride = panelBytes(format, w.in);
  b.panels = static_cast<const std::byte*>(w.data) + panel_begin * b.panel_stride;
  // The thread most likely goes on with the panels after these.
  const int64_t end = panel_begin + (cols + kPanelCols - 1) / kPanelCols;
  if (end < weight.panels()) b.next = static_cast<const std::byte*>(w.data) + end * b.panel_stride;
  b.group = packedGroup(format);
  b.scale_dtype = w.scale_dtype;
  b.y = y;
  b.cols = cols;
  if (!plan.terms_of_tile.empty()) {
    b.terms =
        std::span(plan.terms_of_tile)
            .subspan(static_cast<size_t>(block.tile_begin), static_cast<size_t>(block.tile_end - block.tile_begin));
  }
  b.first_col = panel_begin * kPanelCols;
  for (int32_t tile = block.adapter_begin; tile < block.adapter_end; ++tile) {
    b.keep_y = b.keep_y || !plan.adapter_tiles[static_cast<size_t>(tile)].in_block;
  }
  b.scratch = scratch.reserve<std::byte>(0);
  weight.kernels->block(b);
}

// Adds every LoRA term of the tile's group that overlaps output columns [col_begin, col_end) to y. The chain of
// multiply-adds of each output continues over the rank of the term.
void Call::addParts(const AdapterTile& tile, int64_t col_begin, int64_t col_end, TileConfiguration& tiles) const {
  const int32_t* tile_rows = plan.adapter_rows.data() + tile.first_row;
  int64_t t_begin = tile.t;
  for (const LoraTerm& part : tile.group->parts) {
    const PackedWeight& b = part.b;
    const int64_t begin = std::max(col_begin, part.out_begin) - part.out_begin;
    const int64_t end = std::min(col_end, part.out_begin + b.out) - part.out_begin;
    if (begin < end) {
      const int64_t first_panel = begin / kPanelCols;
      float* y[kMaxTileRows];
      PanelArgs panel{tiles};
      panel.x = t + t_begin * static_cast<int64_t>(sizeof(float));
      panel.x_piece = kPanelCols;
      panel.inputs = b.in;
      panel.panel_stride = panelBytes(b.format(), b.in);
      panel.panels = static_cast<const std::byte*>(b.data) + first_panel * panel.panel_stride;
      setFormat(b, panel);
      panel.skip = begin - first_panel * kPanelCols;
      panel.cols = end - first_panel * kPanelCols;
      panel.accumulate = true;
      panel.y = y;
      for (int r = 0; r < tile.rows; ++r) y[r] = yRow(tile_rows[r]) + part.out_begin + first_panel * kPanelCols;
      const PanelKernels& part_kernels = panelKernels(isa, b.format());
      if (b.in > 0) part_kernels.run[tile.rows](panel);
      for (int r = 0; r < tile.rows; ++r) {
        float* cols = y[r] + panel.skip;
        for (int64_t c = 0; part.bias != nullptr && c < end - begin; ++c) cols[c] += part.scale * part.bias[begin + c];
        if (part.magnitude != nullptr) part_kernels.scale_columns(part.magnitude + begin, cols, end - begin);
      }
    }
    t_begin += (part.a.out + kPanelCols - 1) / kPanelCols * kPanelCols * tile.rows;
  }
}

// Computes panel tasks [begin, end). Consecutive tasks of a block are joined, so that many panels are read as one
// stream. Tasks of PanelKernels::block are long already.
void Call::multiplyTasks(int64_t begin, int64_t end, ScratchMemory& scratch) const {
  TileConfiguration tiles;
  while (begin < end) {
    PanelTask task = plan.panel_tasks[static_cast<size_t>(begin++)];
    if (!weightOf(plan.blocks[static_cast<size_t>(task.block)].weight).inBlocks()) {
      for (; begin < end && plan.panel_tasks[static_cast<size_t>(begin)].block == task.block; ++begin) {
        task.end = plan.panel_tasks[static_cast<size_t>(begin)].end;
      }
    }
    multiplyPanels(task, scratch, tiles);
  }
}

// Calls fn(part, first, count) for every LoRA term of the block that overlaps panels [begin, end) of the weight: B has
// `count` panels there, from panel `first` of B on. A group that has several tiles is taken once.
template <typename F>
void Call::forEachTerm(const RowBlock& block, int64_t begin, int64_t end, F&& fn) const {
  const RowGroup* seen = nullptr;
  for (int32_t tile = block.adapter_begin; tile < block.adapter_end; ++tile) {
    const RowGroup* const group = plan.adapter_tiles[static_cast<size_t>(tile)].group;
    if (std::exchange(seen, group) == group) continue;
    for (const LoraTerm& part : group->parts) {
      const int64_t from = std::max(begin * kPanelCols, part.out_begin) - part.out_begin;
      const int64_t to = std::min(end * kPanelCols - part.out_begin, part.b.out);
      if (from < to) fn(part, from / kPanelCols, ceilDivide(to, kPanelCols) - from / kPanelCols);
    }
  }
}

// Returns the number of panels of a task after which the LoRA terms are added: as many as have kTermBytes of B, which
// is prefetched during the products of these panels and must stay in L2 until then. It is even, or all panels.
int64_t Call::panelsPerTerms(const RowBlock& block, const PanelTask& task) const {
  constexpr int64_t kTermBytes = int64_t{128} << 10;
  // The weights that a single tile streams through L2 meanwhile.
  constexpr int64_t kStreamBytes = int64_t{512} << 10;
  constexpr int64_t kLeastStreamed = 4;  // kernels take up to so many panels at once
  const int64_t panels = task.end - task.begin;
  int64_t bytes = 0;  // of B
  forEachTerm(block, task.begin, task.end, [&](const LoraTerm& part, int64_t, int64_t count) {
    bytes += count * panelBytes(part.b.format(), part.b.in);
  });
  if (bytes == 0) return panels;
  int64_t stretch = panels * kTermBytes / bytes;
  if (block.tile_end - block.tile_begin == 1) {
    const PackedWeight& w = weightOf(block.weight).weight;
    const int64_t panel_bytes = std::max<int64_t>(1, panelBytes(w.format(), w.in));
    stretch = std::min(stretch, std::max(kLeastStreamed, kStreamBytes / panel_bytes));
  }
  return std::min(panels, std::max<int64_t>(1, stretch / kPanelsInTurn) * kPanelsInTurn);
}

// Adds the lines of B that the LoRA terms of panels [begin, end) read.
void Call::addTermLines(const RowBlock& block, int64_t begin, int64_t end, LineRuns& lines) const {
  forEachTerm(block, begin, end, [&](const LoraTerm& part, int64_t first, int64_t count) {
    const int64_t stride = panelBytes(part.b.format(), part.b.in);
    lines.add(static_cast<const std::byte*>(part.b.data) + first * stride, count * stride / 64);
  });
}

// Adds the LoRA terms of panels [begin, end) that are not BlockTerms, while y is still in the caches.
void Call::addTerms(const RowBlock& block, int64_t begin, int64_t end, TileConfiguration& tiles) const {
  const int64_t col_end = std::min(weightOf(block.weight).weight.out, end * kPanelCols);
  for (int32_t tile = block.adapter_begin; tile < block.adapter_end; ++tile) {
    const AdapterTile& adapter_tile = plan.adapter_tiles[static_cast<size_t>(tile)];
    if (!adapter_tile.in_block) addParts(adapter_tile, begin * kPanelCols, col_end, tiles);
  }
}

void Call::multiplyPanels(const PanelTask& task, ScratchMemory& scratch, TileConfiguration& tiles) const {
  const RowBlock& block = plan.blocks[static_cast<size_t>(task.block)];
  const WeightRows& weight = weightOf(block.weight);
  if (!weight.inBlocks()) return multiplyWeight(block, task, tiles);
  const int64_t cols = std::min(weight.weight.out, task.end * kPanelCols) - task.begin * kPanelCols;
  multiplyBlock(block, task.begin, cols, scratch, tiles);
  addTerms(block, task.begin, task.end, tiles);
}
}  // namespace

void linearCpu(const LinearArgs& args, const StepBatch& batch, CpuWorkspace& workspace, LinearPlan& plan) {
  assert(args.y.rows == args.x.rows);
  if (args.x.rows == 0) return;
  const auto groups = batch.groups[args.groups];
  assignRows(args, groups, plan);
  bool packs = false, whole_rows = false;
  for (WeightRows& weight : plan.weights) {
    const PackedWeight& w = weight.weight;
    assert(args.x.cols == w.in && w.out <= args.y.cols);
    weight.kernels = workspace.select(Op::kLinear, panelKernels(w.format()), w.dtype);
    packs = packs || weight.packs();
    whole_rows = whole_rows || weight.kernels->wholeRows();
  }
  cutRows(args, groups, workspace.isa, workspace.pool.size(), plan);
  Call call{args, plan, workspace.isa};
  const int64_t tiles = packs ? std::ssize(plan.tiles) : 0;
  const auto adapter_tasks = static_cast<int64_t>(plan.adapter_tasks.size());

  call.x = workspace.shared[0].reserve<std::byte>(static_cast<size_t>(plan.x_bytes));
  call.t = workspace.shared[1].reserve<std::byte>(static_cast<size_t>(plan.t_floats) * sizeof(float));
  assignBlockTerms(call.t, plan);
  const size_t tile_bytes = static_cast<size_t>(tileSize(kMaxTileRows, args.x.cols)) * sizeof(float);
  const size_t scratch_bytes = std::max(adapter_tasks > 0 ? tile_bytes : 0, plan.block_scratch);
  for (ScratchMemory& scratch : workspace.thread) scratch.reserve<std::byte>(scratch_bytes);

  constexpr int64_t kMaxRange = 16;  // tasks
  // Packing a few rows costs less than waking the other threads.
  constexpr int64_t kPackAlone = 8192;
  if (adapter_tasks == 0 && args.x.rows * args.x.cols <= kPackAlone) {
    for (int64_t tile = 0; tile < tiles; ++tile) call.packRows(tile, 0, args.x.cols);
  } else {
    const int64_t slice = whole_rows ? std::max(kInputBlock, args.x.cols) : kInputBlock;
    const int64_t slices = std::max<int64_t>(1, (args.x.cols + slice - 1) / slice);
    workspace.forEachRange(tiles * slices, kMaxRange, [&](int64_t task, int64_t end, int) {
      for (; task < end; ++task) {
        const int64_t begin = task % slices * slice;
        call.packRows(task / slices, begin, std::min(args.x.cols, begin + slice));
      }
    });
    // A separate run, because products with A may read the rows that the first run packs.
    const int64_t ranges_of_thread = 8;  // short ranges, so that no thread waits long at the end
    const int64_t length = std::max<int64_t>(1, adapter_tasks / (ranges_of_thread * workspace.pool.size()));
    workspace.forEachRange(adapter_tasks, length, [&](int64_t task, int64_t end, int thread) {
      const AdapterTile* packed_tile = nullptr;
      TileConfiguration configuration;
      auto* packed = workspace.thread[static_cast<size_t>(thread)].reserve<std::byte>(0);
      for (; task < end; ++task) {
        const AdapterTask* const one = &plan.adapter_tasks[static_cast<size_t>(task)];
        call.multiplyA(*one, task + 1 < end ? one + 1 : nullptr, packed, packed_tile, configuration);
      }
    });
  }
  workspace.forEachRange(std::ssize(plan.panel_tasks), kMaxRange, [&](int64_t begin, int64_t end, int thread) {
    call.multiplyTasks(begin, end, workspace.thread[static_cast<size_t>(thread)]);
  });
}

DType linearInputType(std::optional<Isa> isa, const WeightFormat& weights) {
  if (!isa) return DType::kFloat32;
  const PanelKernels& kernels = panelKernels(*isa, weights);
  return kernels.takesRows() || kernels.fixed_run > 0 ? DType::kFloat32 : DType::kBFloat16;
}

int64_t linearInputRun(std::optional<Isa> isa, const WeightFormat& weights) {
  return isa ? panelKernels(*isa, weights).fixed_run : 0;
}

bool isPortable(Isa isa, DType cache_dtype) { return linearInputType(isa, cache_dtype) == DType::kFloat32; }

Isa linearIsa(Isa isa, const WeightFormat& weights) { return selectKernel(panelKernels(weights), isa).isa; }

std::vector<Variant> linearVariants() {
  std::vector<Variant> variants;
  for (const DType dtype : panelFormats()) {
    const auto some = variantsOf(Op::kLinear, panelKernels({dtype, 0, DType::kBFloat16}), dtype);
    variants.insert(variants.end(), some.begin(), some.end());
  }
  return variants;
}

}  // namespace chorus
