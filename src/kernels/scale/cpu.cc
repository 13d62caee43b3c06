#include "kernels/scale/cpu.h"

namespace chorus {
namespace {
constexpr Variant kScale{Op::kScale, Isa::kScalar, std::nullopt};
}

// The compiler makes vectors of the reference's loop, and a product rounds the same way in all of them.
void scaleCpu(const ScaleArgs& args, CpuWorkspace& workspace) {
  workspace.used.add(kScale);
  workspace.forEachPiece(args.x.rows, args.x.cols, [&](int64_t begin, int64_t end, int) {
    ScaleArgs piece = args;
    piece.x.data = args.x.row(begin);
    piece.x.rows = end - begin;
    reference::scale(piece);
  });
}

std::vector<Variant> scaleVariants() { return {kScale}; }

}  // namespace chorus
