// Sums of squares on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/row_squares/row_squares.h"

namespace chorus {

void rowSquaresCpu(const RowSquaresArgs& args, CpuWorkspace& workspace);

}  // namespace chorus
