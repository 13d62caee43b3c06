#include "kernels/embedding/cpu.h"

#include <algorithm>

namespace chorus {

// Both move memory with exact conversions, a few rows a step: the plain loops do, over threads.
void embeddingCpu(const EmbeddingArgs& args, CpuWorkspace& workspace) {
  workspace.forEachPiece(std::ssize(args.tokens), args.out.cols, [&](int64_t begin, int64_t end) {
    EmbeddingArgs piece = args;
    piece.tokens = args.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    piece.out.data += begin * args.out.stride;
    reference::embedding(piece);
  });
}

void gatherRowsCpu(const GatherRowsArgs& args, CpuWorkspace& workspace) {
  workspace.forEachPiece(std::ssize(args.rows), args.out.cols, [&](int64_t begin, int64_t end) {
    GatherRowsArgs piece = args;
    piece.rows = args.rows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    piece.out.data += begin * args.out.stride;
    reference::gatherRows(piece);
  });
}

}  // namespace chorus
