// chorus inspect --kernels.
#pragma once

namespace chorus {

// On standard output: for every op, by weight format where that matters, the variant that this machine uses and the
// others that this program holds, those that the machine cannot run marked.
void printKernels();

}  // namespace chorus
