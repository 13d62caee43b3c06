// chorus inspect --kernels.
#pragma once

namespace chorus {

// Prints to standard output, for every op and, where it matters, weight format: the variant that this machine uses and
// the other variants in the program. Variants that the machine cannot run are marked.
void printKernels();

}  // namespace chorus
