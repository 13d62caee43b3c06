#include "kernels/position_embedding/cpu.h"

#include "kernels/position_embedding/add_positions.h"

namespace chorus {
namespace {
constexpr Variant kPositionEmbedding{Op::kPositionEmbedding, Isa::kScalar, std::nullopt};
}

// Plain loops are fast enough: the op runs once per step and reads one row of the table for each row.
void positionEmbeddingCpu(const PositionEmbeddingArgs& args, const StepBatch& batch, CpuWorkspace& workspace) {
  workspace.used.add(kPositionEmbedding);
  workspace.forEachPiece(args.x.rows, args.x.cols,
                         [&](int64_t begin, int64_t end, int) { addPositions(args, batch, begin, end); });
}

std::vector<Variant> positionEmbeddingVariants() { return {kPositionEmbedding}; }

}  // namespace chorus
