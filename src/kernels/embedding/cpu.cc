#include "kernels/embedding/cpu.h"

#include <algorithm>

namespace chorus {

namespace {
constexpr Variant kEmbedding{Op::kEmbedding, Isa::kScalar, std::nullopt};
constexpr Variant kGatherRows{Op::kGatherRows, Isa::kScalar, std::nullopt};
}  // namespace

// Both move memory with exact conversions, a few rows a step: the plain loops do, over threads.
void embeddingCpu(const EmbeddingArgs& args, CpuWorkspace& workspace) {
  workspace.used.add(kEmbedding);
  workspace.forEachPiece(std::ssize(args.tokens), args.out.cols, [&](int64_t begin, int64_t end) {
    EmbeddingArgs piece = args;
    piece.tokens = args.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    piece.out.data += begin * args.out.stride;
    reference::embedding(piece);
  });
}

void gatherRowsCpu(const GatherRowsArgs& args, CpuWorkspace& workspace) {
  workspace.used.add(kGatherRows);
  workspace.forEachPiece(std::ssize(args.rows), args.out.cols, [&](int64_t begin, int64_t end) {
    GatherRowsArgs piece = args;
    piece.rows = args.rows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    piece.out.data += begin * args.out.stride;
    reference::gatherRows(piece);
  });
}

std::vector<Variant> embeddingVariants() { return {kEmbedding}; }
std::vector<Variant> gatherRowsVariants() { return {kGatherRows}; }

}  // namespace chorus
