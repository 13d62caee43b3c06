#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_squares/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/row_squares/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

void rowSquaresRows(const RowSquaresArgs& args, int64_t begin, int64_t end) {
  const int64_t cols = args.x.cols;
  for (int64_t r = begin; r < end; ++r) {
    const float* row = args.x.row(r);
    args.squares[r * args.stride] = sumOfColumns(cols, [=, bias = args.bias](int64_t c, FloatVec sum) HWY_ATTR {
      FloatVec x = loadColumns(row, c, cols);
      if (bias != nullptr) x = hn::Add(x, loadColumns(bias, c, cols));
      return mulAdd(x, x, sum);
    });
  }
}

using RowSquaresRows = void (*)(const RowSquaresArgs&, int64_t, int64_t);
RowSquaresRows rows() { return &rowSquaresRows; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
using RowSquaresRows = void (*)(const RowSquaresArgs&, int64_t, int64_t);
IsaTable<RowSquaresRows> table() { CHORUS_ISA_TABLE(RowSquaresRows, rows); }
}  // namespace

void rowSquaresCpu(const RowSquaresArgs& args, CpuWorkspace& workspace) {
  const RowSquaresRows run = workspace.select(Op::kRowSquares, table());
  workspace.forEachPiece(args.x.rows, args.x.cols, [&](int64_t begin, int64_t end, int) { run(args, begin, end); });
}

std::vector<Variant> rowSquaresVariants() { return variantsOf(Op::kRowSquares, table()); }
}  // namespace chorus
#endif
