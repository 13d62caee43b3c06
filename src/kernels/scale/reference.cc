#include "kernels/scale/scale.h"

namespace chorus::reference {

void scale(const ScaleArgs& args) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    float* row = args.x.row(r);
    for (int64_t c = 0; c < args.x.cols; ++c) row[c] *= args.factor;
  }
}

}  // namespace chorus::reference
