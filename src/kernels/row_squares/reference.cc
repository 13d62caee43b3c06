#include "kernels/row_squares/row_squares.h"

namespace chorus::reference {

void rowSquares(const RowSquaresArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const float* row = args.x.row(r);
    float sum = 0;
    for (int64_t c = 0; c < args.x.cols; ++c) {
      const float x = args.bias == nullptr ? row[c] : row[c] + args.bias[c];
      sum += x * x;
    }
    args.squares[r * args.stride] = sum;
  }
}

}  // namespace chorus::reference
