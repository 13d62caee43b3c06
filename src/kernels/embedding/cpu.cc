#include "kernels/embedding/cpu.h"

#include <algorithm>

#include "kernels/embedding/look_up.h"
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {

namespace {
constexpr Variant kEmbedding{Op::kEmbedding, Isa::kScalar, std::nullopt};
constexpr Variant kGatherRows{Op::kGatherRows, Isa::kScalar, std::nullopt};

// Adds one LoRA term of a group to up to max_rows of its rows. The products with B use the panel kernels of the linear
// and accumulate in `out`.
void addPart(const EmbeddingArgs& args, const StepBatch& batch, const EmbeddingPart& part, const PanelKernels& kernels,
             std::span<const int32_t> rows, float* scratch, TileConfiguration& tiles) {
  const PackedWeight& b = part.b;
  const auto count = static_cast<int>(rows.size());
  float* y[kMaxTileRows];
  const float* t[kMaxTileRows] = {};
  for (int r = 0; r < count; ++r) {
    float* row = scratch + r * b.in;
    widenRow(part.a, batch.tokens[static_cast<size_t>(rows[static_cast<size_t>(r)])], b.in, row);
    for (int64_t i = 0; i < b.in; ++i) row[i] *= part.scale;
    t[r] = row;
    y[r] = args.out.row(rows[static_cast<size_t>(r)]);
  }
  PanelArgs panel{tiles};
  panel.x = t[0];
  if (count > 1 || !kernels.takesRows()) {
    float* packed = scratch + kMaxTileRows * b.in;
    kernels.pack(t, count, b.in, packed);
    panel.x = packed;
  }
  panel.inputs = b.in;
  panel.panels = b.data;
  panel.panel_stride = panelBytes(b.dtype, b.in);
  panel.input_stride = packedInputStride(b.dtype);
  panel.y = y;
  panel.cols = args.out.cols;
  panel.accumulate = true;
  kernels.run[count](panel);
  for (int r = 0; part.magnitude != nullptr && r < count; ++r) {
    kernels.scale_columns(part.magnitude, y[r], args.out.cols);
  }
}

// Adds all LoRA terms of the group to its rows in [begin, end).
void addParts(const EmbeddingArgs& args, const StepBatch& batch, const EmbeddingGroup& group, int64_t begin,
              int64_t end, Isa isa, float* scratch, TileConfiguration& tiles) {
  for (const EmbeddingPart& part : group.parts) {
    const PanelKernels& kernels = panelKernels(isa, part.b.dtype);
    int32_t rows[kMaxTileRows];
    size_t count = 0;
    const auto flush = [&] {
      if (count > 0) addPart(args, batch, part, kernels, {rows, count}, scratch, tiles);
      count = 0;
    };
    for (const RowRange range : group.ranges) {
      for (auto r = std::max<int64_t>(begin, range.begin); r < std::min<int64_t>(end, range.end); ++r) {
        rows[count++] = static_cast<int32_t>(r);
        if (count == static_cast<size_t>(kernels.max_rows)) flush();
      }
    }
    flush();
  }
}
}  // namespace

// Without LoRA terms this only copies a few rows per step, with exact conversions; plain loops are fast enough.
void embeddingCpu(const EmbeddingArgs& args, const StepBatch& batch, CpuWorkspace& workspace) {
  workspace.used.add(kEmbedding);
  const auto groups = batch.groups[args.groups];
  int64_t floats = 0;  // scaled rows of A of one tile, and the same rows packed
  for (const EmbeddingGroup& group : groups) {
    for (const EmbeddingPart& part : group.parts) {
      floats = std::max(floats, kMaxTileRows * part.b.in + tileSize(kMaxTileRows, part.b.in));
    }
  }
  for (ScratchMemory& scratch : workspace.thread) scratch.reserve<float>(static_cast<size_t>(floats));
  workspace.forEachPiece(batch.rows(), args.out.cols, [&](int64_t begin, int64_t end, int thread) {
    lookUpRows(args, batch, begin, end);
    auto* scratch = workspace.thread[static_cast<size_t>(thread)].reserve<float>(0);
    TileConfiguration tiles;
    for (const EmbeddingGroup& group : groups) {
      addParts(args, batch, group, begin, end, workspace.isa, scratch, tiles);
    }
  });
}

void gatherRowsCpu(const GatherRowsArgs& args, const StepBatch& batch, CpuWorkspace& workspace) {
  workspace.used.add(kGatherRows);
  workspace.forEachPiece(args.out.rows, args.out.cols,
                         [&](int64_t begin, int64_t end, int) { copyRows(args, batch, begin, end); });
}

std::vector<Variant> embeddingVariants() { return {kEmbedding}; }
std::vector<Variant> gatherRowsVariants() { return {kGatherRows}; }

}  // namespace chorus
