#include "kernels/linear/cpu.h"

#include <algorithm>
#include <cassert>

#include "kernels/linear/fixed_point.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {
namespace {

// A block of rows is multiplied by this many inputs of some panels before it continues with the next panels. Products
// are split at multiples of this number.
constexpr int64_t kInputBlock = 1024;
static_assert(kInputBlock % kScaleRun == 0 && kInputBlock % kFixedRun == 0);

// Spreads the prefetch of the next kPanelsInTurn panels over the tiles that still work on the current ones.
struct Prefetch {
  const std::byte* panels;
  int64_t stride;
  int64_t lines_of_panel;  // 0: nothing to fetch

  void share(int64_t tile, int64_t tiles, int64_t passes, PanelArgs& args) const {
    args.next = nullptr;
    args.next_lines = 0;
    const int64_t steps = args.inputs / 4 * passes;
    if (lines_of_panel == 0 || steps == 0) return;
    const int64_t total = lines_of_panel * kPanelsInTurn;
    int64_t lines = 1;
    while (lines * steps * tiles < total && lines < 8) lines *= 2;
    const int64_t first = tile * steps * lines;
    if (first >= total) return;
    args.next = panels + first / lines_of_panel * stride + first % lines_of_panel * 64;
    args.next_lines = static_cast<int>(lines);
  }
};

// Data that all tasks of one call share.
struct Call {
  const LinearArgs& args;
  const LinearPlan& plan;
  Isa isa;
  std::byte* x = nullptr;  // packed rows of the weights
  std::byte* t = nullptr;  // scaled products with A, packed by adapter tile and LoRA term

  const float* xRow(int64_t r) const { return args.x.data + r * args.x.stride; }
  float* yRow(int64_t r) const { return args.y.data + r * args.y.stride; }
  const WeightRows& weightOf(int32_t index) const { return plan.weights[static_cast<size_t>(index)]; }
  const int32_t* rowsOf(const RowTile& tile) const { return plan.rows.data() + tile.first_row; }
  std::byte* packed(const WeightRows& weight, const RowTile& tile) const {
    return x + weight.x + (tile.first_row - weight.first_row) * weight.row_bytes;
  }

  void packRows(int64_t tile, int64_t begin, int64_t end) const;
  void multiplyA(const AdapterTask& task, std::byte* packed, const AdapterTile*& packed_tile) const;
  void multiplyPanels(const PanelTask& task) const;
  void multiplyWeight(const RowBlock& block, int64_t panel_begin, int64_t cols) const;
  void addParts(const AdapterTile& tile, int64_t col_begin, int64_t col_end) const;
};

// Packs inputs [begin, end) of a tile; begin is a multiple of kInputBlock.
void Call::packRows(int64_t index, int64_t begin, int64_t end) const {
  const RowTile& tile = plan.tiles[static_cast<size_t>(index)];
  const WeightRows& weight = weightOf(tile.weight);
  if (!weight.packs()) return;
  const int32_t* tile_rows = rowsOf(tile);
  const float* rows[kMaxTileRows];
  for (int r = 0; r < tile.rows; ++r) rows[r] = xRow(tile_rows[r]) + begin;
  weight.kernels->pack(rows, tile.rows, end - begin,
                       packed(weight, tile) + tile.rows * weight.kernels->rowBytes(begin));
}

// packed_tile: the tile that `packed` currently holds. Consecutive tasks of a thread often have the same tile, which is
// then packed only once.
void Call::multiplyA(const AdapterTask& task, std::byte* packed, const AdapterTile*& packed_tile) const {
  const AdapterTile& tile = plan.adapter_tiles[static_cast<size_t>(task.tile)];
  const LoraTerm& part = tile.group->parts[static_cast<size_t>(task.part)];
  const PackedWeight& a = part.a;
  assert(a.in == args.x.cols && a.dtype == part.b.dtype);
  const PanelKernels& part_kernels = panelKernels(isa, a.dtype);
  const int32_t* tile_rows = plan.adapter_rows.data() + tile.first_row;
  float product[kMaxTileRows][kPanelCols];
  float* y[kMaxTileRows];
  const float* rows[kMaxTileRows] = {};
  for (int r = 0; r < tile.rows; ++r) {
    rows[r] = xRow(tile_rows[r]);
    y[r] = product[r];
  }
  PanelArgs panel;
  panel.x = rows[0];
  if (tile.rows > 1 || !part_kernels.takesRows()) {
    if (packed_tile != &tile) part_kernels.pack(rows, tile.rows, a.in, packed);
    packed_tile = &tile;
    panel.x = packed;
  }
  panel.inputs = a.in;
  panel.panels = static_cast<const std::byte*>(a.data) + task.panel * panelBytes(a.dtype, a.in);
  panel.input_stride = packedInputStride(a.dtype);
  panel.y = y;
  panel.cols = kPanelCols;
  panel.stream = true;
  part_kernels.run[tile.rows](panel);
  for (int r = 0; r < tile.rows; ++r) {
    for (float& value : product[r]) value *= part.scale;
    rows[r] = product[r];
  }
  std::byte* part_t = t + task.t * static_cast<int64_t>(sizeof(float));
  part_kernels.pack(rows, tile.rows, kPanelCols,
                    part_t + task.panel * kPanelCols * tile.rows * part_kernels.element_bytes);
}

void Call::multiplyWeight(const RowBlock& block, int64_t panel_begin, int64_t cols) const {
  const WeightRows& weight = weightOf(block.weight);
  const PanelKernels& kernels = *weight.kernels;
  const PackedWeight& w = weight.weight;
  const int32_t tiles = block.tile_end - block.tile_begin;
  const WeightFormat format = w.format();
  const int64_t stride = panelBytes(format, w.in);
  const auto* data = static_cast<const std::byte*>(w.data) + panel_begin * stride;
  const int64_t panels = (cols + kPanelCols - 1) / kPanelCols;
  // A single tile streams through all panels at once. Several tiles take a few panels in turn and share a block of
  // inputs.
  const int64_t panels_in_turn = tiles == 1 ? panels : kPanelsInTurn;
  const int64_t input_block = tiles == 1 ? w.in : kInputBlock;
  float* y[kMaxTileRows];
  PanelArgs panel;
  panel.panel_stride = stride;
  panel.input_stride = packedInputStride(w.dtype);
  panel.group = packedGroup(format);
  panel.scale_dtype = w.scale_dtype;
  panel.y = y;
  panel.stream = tiles == 1;
  for (int64_t i = 0; i < w.in; i += input_block) {
    const std::byte* slab = data + panelBytes(format, i);
    panel.inputs = std::min(input_block, w.in - i);
    panel.accumulate = i > 0;
    for (int64_t p = 0; p < panels; p += panels_in_turn) {
      panel.panels = slab + p * stride;
      panel.cols = std::min(panels_in_turn * kPanelCols, cols - p * kPanelCols);
      // At the end of a task, prefetches its neighbours, because they are most likely the next panels to be used.
      const bool last = p + panels_in_turn >= panels;
      const bool end = last && i + input_block >= w.in;
      const std::byte* following = end    ? data + panels * stride
                                   : last ? data + panelBytes(format, i + input_block)
                                          : slab + (p + panels_in_turn) * stride;
      Prefetch prefetch{following, stride, panelBytes(format, end ? std::min(input_block, w.in) : panel.inputs) / 64};
      if (tiles == 1 || (end && (panel_begin + panels) * kPanelCols >= w.out)) prefetch.lines_of_panel = 0;
      for (int32_t t = 0; t < tiles; ++t) {
        const RowTile& tile = plan.tiles[static_cast<size_t>(block.tile_begin + t)];
        const int32_t* rows = rowsOf(tile);
        for (int r = 0; r < tile.rows; ++r) y[r] = yRow(rows[r]) + (panel_begin + p) * kPanelCols;
        const auto* x_tile = weight.packs() ? packed(weight, tile) : reinterpret_cast<const std::byte*>(xRow(rows[0]));
        panel.x = x_tile + tile.rows * kernels.rowBytes(i);
        prefetch.share(t, tiles, kernels.passes[tile.rows], panel);
        kernels.run[tile.rows](panel);
      }
    }
  }
}

// Adds every LoRA term of the tile's group that overlaps output columns [col_begin, col_end) to y. The chain of
// multiply-adds of each output continues over the rank of the term.
void Call::addParts(const AdapterTile& tile, int64_t col_begin, int64_t col_end) const {
  const int32_t* tile_rows = plan.adapter_rows.data() + tile.first_row;
  int64_t t_begin = tile.t;
  for (const LoraTerm& part : tile.group->parts) {
    const PackedWeight& b = part.b;
    const int64_t begin = std::max(col_begin, part.out_begin) - part.out_begin;
    const int64_t end = std::min(col_end, part.out_begin + b.out) - part.out_begin;
    if (begin < end) {
      const int64_t first_panel = begin / kPanelCols;
      float* y[kMaxTileRows];
      PanelArgs panel;
      panel.x = t + t_begin * static_cast<int64_t>(sizeof(float));
      panel.x_piece = kPanelCols;
      panel.inputs = b.in;
      panel.panel_stride = panelBytes(b.dtype, b.in);
      panel.panels = static_cast<const std::byte*>(b.data) + first_panel * panel.panel_stride;
      panel.input_stride = packedInputStride(b.dtype);
      panel.skip = begin - first_panel * kPanelCols;
      panel.cols = end - first_panel * kPanelCols;
      panel.accumulate = true;
      panel.y = y;
      for (int r = 0; r < tile.rows; ++r) y[r] = yRow(tile_rows[r]) + part.out_begin + first_panel * kPanelCols;
      const PanelKernels& part_kernels = panelKernels(isa, b.dtype);
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

void Call::multiplyPanels(const PanelTask& task) const {
  const RowBlock& block = plan.blocks[static_cast<size_t>(task.block)];
  const int64_t col_begin = task.begin * kPanelCols;
  const int64_t col_end = std::min(weightOf(block.weight).weight.out, task.end * kPanelCols);
  multiplyWeight(block, task.begin, col_end - col_begin);
  for (int32_t tile = block.adapter_begin; tile < block.adapter_end; ++tile) {
    addParts(plan.adapter_tiles[static_cast<size_t>(tile)], col_begin, col_end);
  }
}
}  // namespace

void linearCpu(const LinearArgs& args, CpuWorkspace& workspace, LinearPlan& plan) {
  assert(args.y.rows == args.x.rows);
  if (args.x.rows == 0) return;
  assignRows(args, plan);
  bool packs = false;
  for (WeightRows& weight : plan.weights) {
    const PackedWeight& w = weight.weight;
    assert(args.x.cols == w.in && w.out <= args.y.cols);
    weight.kernels = workspace.select(Op::kLinear, panelKernels(w.format()), w.dtype);
    packs = packs || weight.packs();
  }
  cutRows(args, workspace.isa, workspace.pool.size(), plan);
  Call call{args, plan, workspace.isa};
  const int64_t tiles = packs ? std::ssize(plan.tiles) : 0;
  const auto adapter_tasks = static_cast<int64_t>(plan.adapter_tasks.size());

  call.x = workspace.shared[0].reserve<std::byte>(static_cast<size_t>(plan.x_bytes));
  call.t = workspace.shared[1].reserve<std::byte>(static_cast<size_t>(plan.t_floats) * sizeof(float));
  const auto tile_floats = static_cast<size_t>(tileSize(kMaxTileRows, args.x.cols));
  for (ScratchMemory& scratch : workspace.thread) scratch.reserve<float>(adapter_tasks > 0 ? tile_floats : 0);

  // Packing a few rows costs less than waking the other threads.
  constexpr int64_t kPackAlone = 8192;
  if (adapter_tasks == 0 && args.x.rows * args.x.cols <= kPackAlone) {
    for (int64_t tile = 0; tile < tiles; ++tile) call.packRows(tile, 0, args.x.cols);
  } else {
    const int64_t slices = std::max<int64_t>(1, (args.x.cols + kInputBlock - 1) / kInputBlock);
    const int64_t pack_tasks = tiles * slices;
    const int64_t pieces = std::min<int64_t>(adapter_tasks, int64_t{8} * workspace.pool.size());
    workspace.pool.run(pack_tasks + pieces, [&](int64_t task, int thread) {
      if (task < pack_tasks) {
        const int64_t begin = task % slices * kInputBlock;
        return call.packRows(task / slices, begin, std::min(args.x.cols, begin + kInputBlock));
      }
      const int64_t piece = task - pack_tasks;
      const AdapterTile* packed_tile = nullptr;
      auto* packed = workspace.thread[static_cast<size_t>(thread)].reserve<std::byte>(0);
      for (int64_t i = adapter_tasks * piece / pieces; i < adapter_tasks * (piece + 1) / pieces; ++i) {
        call.multiplyA(plan.adapter_tasks[static_cast<size_t>(i)], packed, packed_tile);
      }
    });
  }
  workspace.pool.run(std::ssize(plan.panel_tasks),
                     [&](int64_t i, int) { call.multiplyPanels(plan.panel_tasks[static_cast<size_t>(i)]); });
}

DType linearInputType(std::optional<Isa> isa, const WeightFormat& weights) {
  if (!isa) return DType::kFloat32;
  const PanelKernels& kernels = panelKernels(*isa, weights);
  return kernels.takesRows() || kernels.fixed_run > 0 ? DType::kFloat32 : DType::kBFloat16;
}

int64_t linearInputRun(std::optional<Isa> isa, const WeightFormat& weights) {
  return isa ? panelKernels(*isa, weights).fixed_run : 0;
}

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
