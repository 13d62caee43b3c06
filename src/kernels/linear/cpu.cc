#include "kernels/linear/cpu.h"

#include <algorithm>
#include <cassert>

#include "kernels/linear/panel_kernels.h"

namespace chorus {
namespace {

// Inputs that a block of rows meets before the next panel is taken: products are cut at its multiples.
constexpr int64_t kInputBlock = 1024;
static_assert(kInputBlock % kScaleRun == 0);

// Spreads the fetch of the next kPanelsInTurn panels over the tiles that still work on these.
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

// One call: everything its tasks share.
struct Call {
  const LinearArgs& args;
  const LinearPlan& plan;
  const PanelKernels& kernels;
  Isa isa;
  float* x = nullptr;  // base tiles, packed: tile t at tile_begin[t] * padded_inputs
  float* t = nullptr;  // products with A, packed by adapter tile and part
  int64_t padded_inputs = 0;

  const float* xRow(int64_t r) const { return args.x.data + r * args.x.stride; }
  float* yRow(int64_t r) const { return args.y.data + r * args.y.stride; }

  void packBase(int64_t tile) const;
  void multiplyA(const AdapterTask& task, float* packed, const AdapterTile*& packed_tile) const;
  void multiplyPanels(int64_t block, int64_t panel_begin, int64_t panel_end, float* scratch) const;
  void multiplyBase(int64_t block, int64_t panel_begin, int64_t cols) const;
  void addParts(const AdapterTile& tile, int64_t col_begin, int64_t col_end, float* scratch) const;
};

void Call::packBase(int64_t tile) const {
  const int32_t begin = plan.tile_begin[static_cast<size_t>(tile)];
  const int count = plan.tile_begin[static_cast<size_t>(tile) + 1] - begin;
  const float* rows[kMaxTileRows];
  for (int r = 0; r < count; ++r) rows[r] = xRow(begin + r);
  packTile(rows, count, args.x.cols, x + begin * padded_inputs);
}

// packed_tile: the tile that `packed` holds, since tasks of one tile follow each other on a thread.
void Call::multiplyA(const AdapterTask& task, float* packed, const AdapterTile*& packed_tile) const {
  const AdapterTile& tile = plan.adapter_tiles[static_cast<size_t>(task.tile)];
  const PackedWeight& a = tile.group->parts[static_cast<size_t>(task.part)].a;
  assert(a.in == args.x.cols);
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
  if (tile.rows > 1) {
    if (packed_tile != &tile) packTile(rows, tile.rows, a.in, packed);
    packed_tile = &tile;
    panel.x = packed;
  }
  panel.inputs = a.in;
  panel.panels = static_cast<const std::byte*>(a.data) + task.panel * panelBytes(a.dtype, a.in);
  panel.input_stride = packedInputStride(a.dtype);
  panel.y = y;
  panel.cols = kPanelCols;
  panelKernels(isa, a.dtype).run[tile.rows](panel);
  for (int r = 0; r < tile.rows; ++r) rows[r] = product[r];
  packTile(rows, tile.rows, kPanelCols, t + task.t);
}

void Call::multiplyBase(int64_t block, int64_t panel_begin, int64_t cols) const {
  const PackedWeight& w = args.weight;
  const int32_t tile_begin = plan.block_begin[static_cast<size_t>(block)];
  const int32_t tiles = plan.block_begin[static_cast<size_t>(block) + 1] - tile_begin;
  const WeightFormat format = w.format();
  const int64_t stride = panelBytes(format, w.in);
  const auto* data = static_cast<const std::byte*>(w.data) + panel_begin * stride;
  const int64_t panels = (cols + kPanelCols - 1) / kPanelCols;
  // One tile streams through all panels at once; several take a few in turn and share a block of inputs.
  const int64_t panels_in_turn = tiles == 1 ? panels : kPanelsInTurn;
  const int64_t input_block = tiles == 1 ? padded_inputs : kInputBlock;
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
      const bool last = p + panels_in_turn >= panels;
      Prefetch prefetch{last ? data + panelBytes(format, i + input_block) : slab + (p + panels_in_turn) * stride,
                        stride, panelBytes(format, panel.inputs) / 64};
      if (tiles == 1 || (last && i + input_block >= w.in)) prefetch.lines_of_panel = 0;
      for (int32_t t = 0; t < tiles; ++t) {
        const int32_t row = plan.tile_begin[static_cast<size_t>(tile_begin + t)];
        const int rows = plan.tile_begin[static_cast<size_t>(tile_begin + t) + 1] - row;
        for (int r = 0; r < rows; ++r) y[r] = yRow(row + r) + (panel_begin + p) * kPanelCols;
        panel.x = (args.x.rows == 1 ? args.x.data : x + row * padded_inputs) + i * rows;
        prefetch.share(t, tiles, kernels.passes[rows], panel);
        kernels.run[rows](panel);
      }
    }
  }
}

// Adds every part of the tile's group that meets output columns [col_begin, col_end).
void Call::addParts(const AdapterTile& tile, int64_t col_begin, int64_t col_end, float* scratch) const {
  const int32_t* tile_rows = plan.adapter_rows.data() + tile.first_row;
  const float* part_t = t + tile.t;
  for (const LinearPart& part : tile.group->parts) {
    const PackedWeight& b = part.b;
    const int64_t begin = std::max(col_begin, part.out_begin) - part.out_begin;
    const int64_t end = std::min(col_end, part.out_begin + b.out) - part.out_begin;
    if (begin < end) {
      const int64_t first_panel = begin / kPanelCols;
      const int64_t skipped = begin - first_panel * kPanelCols;
      float* y[kMaxTileRows];
      PanelArgs panel;
      panel.x = part_t;
      panel.inputs = b.in;
      panel.panel_stride = panelBytes(b.dtype, b.in);
      panel.panels = static_cast<const std::byte*>(b.data) + first_panel * panel.panel_stride;
      panel.input_stride = packedInputStride(b.dtype);
      panel.cols = (end - begin + skipped + kPanelCols - 1) / kPanelCols * kPanelCols;
      panel.y = y;
      for (int r = 0; r < tile.rows; ++r) y[r] = scratch + r * panel.cols;
      const PanelKernels& part_kernels = panelKernels(isa, b.dtype);
      part_kernels.run[tile.rows](panel);
      const float* magnitude = part.magnitude == nullptr ? nullptr : part.magnitude + begin;
      for (int r = 0; r < tile.rows; ++r) {
        part_kernels.apply_part(y[r] + skipped, part.scale, magnitude, yRow(tile_rows[r]) + part.out_begin + begin,
                                end - begin);
      }
    }
    part_t += (part.a.out + kPanelCols - 1) / kPanelCols * kPanelCols * tile.rows;
  }
}

void Call::multiplyPanels(int64_t block, int64_t panel_begin, int64_t panel_end, float* scratch) const {
  const int64_t col_begin = panel_begin * kPanelCols;
  const int64_t col_end = std::min(args.weight.out, panel_end * kPanelCols);
  multiplyBase(block, panel_begin, col_end - col_begin);
  const int32_t last = plan.block_adapters[static_cast<size_t>(block) + 1];
  for (int32_t tile = plan.block_adapters[static_cast<size_t>(block)]; tile < last; ++tile) {
    addParts(plan.adapter_tiles[static_cast<size_t>(tile)], col_begin, col_end, scratch);
  }
}

// Panels of one task: enough to stream, few enough that every thread gets several tasks.
int64_t panelsPerTask(int64_t panels, int64_t blocks, int threads) {
  const int64_t wanted = panels * blocks / (int64_t{8} * threads);
  return std::clamp<int64_t>(wanted / 8 * 8, 8, 64);
}
}  // namespace

void linearCpu(const LinearArgs& args, CpuWorkspace& workspace, LinearPlan& plan) {
  assert(args.x.cols == args.weight.in && args.y.rows == args.x.rows && args.y.cols == args.weight.out);
  if (args.x.rows == 0 || args.weight.out == 0) return;
  const DType dtype = args.weight.dtype;
  const PanelKernels& kernels = *workspace.select(Op::kLinear, panelKernels(dtype), dtype);
  planLinear(args, kernels.max_rows, plan);
  Call call{args, plan, kernels, workspace.isa};
  call.padded_inputs = (args.x.cols + 3) / 4 * 4;
  const auto base_tiles = args.x.rows == 1 ? 0 : static_cast<int64_t>(plan.tile_begin.size()) - 1;
  const auto adapter_tasks = static_cast<int64_t>(plan.adapter_tasks.size());
  const int64_t panels = (args.weight.out + kPanelCols - 1) / kPanelCols;
  const auto blocks = static_cast<int64_t>(plan.block_begin.size()) - 1;
  const int64_t per_task = panelsPerTask(panels, blocks, workspace.pool.size());
  const int64_t groups = (panels + per_task - 1) / per_task;

  call.x = workspace.shared[0].reserve<float>(static_cast<size_t>(args.x.rows * call.padded_inputs));
  call.t = workspace.shared[1].reserve<float>(static_cast<size_t>(plan.t_floats));
  const int64_t thread_floats = kMaxTileRows * std::max(call.padded_inputs, (per_task + 1) * kPanelCols);
  for (Scratch& scratch : workspace.thread) scratch.reserve<float>(static_cast<size_t>(thread_floats));

  // Packing a few rows costs less than waking the other threads.
  constexpr int64_t kPackAlone = 32768;
  if (adapter_tasks == 0 && args.x.rows * args.x.cols <= kPackAlone) {
    for (int64_t tile = 0; tile < base_tiles; ++tile) call.packBase(tile);
  } else {
    const int64_t pieces = std::min<int64_t>(adapter_tasks, int64_t{8} * workspace.pool.size());
    workspace.pool.run(base_tiles + pieces, [&](int64_t task, int thread) {
      if (task < base_tiles) return call.packBase(task);
      const int64_t piece = task - base_tiles;
      const AdapterTile* packed_tile = nullptr;
      float* packed = workspace.thread[static_cast<size_t>(thread)].reserve<float>(0);
      for (int64_t i = adapter_tasks * piece / pieces; i < adapter_tasks * (piece + 1) / pieces; ++i) {
        call.multiplyA(plan.adapter_tasks[static_cast<size_t>(i)], packed, packed_tile);
      }
    });
  }
  workspace.pool.run(blocks * groups, [&](int64_t task, int thread) {
    const int64_t begin = task % groups * per_task;
    call.multiplyPanels(task / groups, begin, std::min(panels, begin + per_task),
                        workspace.thread[static_cast<size_t>(thread)].reserve<float>(0));
  });
}

std::vector<Variant> linearVariants() {
  std::vector<Variant> variants;
  for (const DType dtype : panelFormats()) {
    const auto some = variantsOf(Op::kLinear, panelKernels(dtype), dtype);
    variants.insert(variants.end(), some.begin(), some.end());
  }
  return variants;
}

}  // namespace chorus
