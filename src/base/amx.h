// Whether this process may use AMX: what the processor and the kernel say, and the permission that the kernel wants to
// be asked for.
#pragma once

#include <cstdint>

namespace chorus {

// Whether CPUID leaf 7's EDX has tiles and their products of bfloat16 and of int8, and XCR0 says that the kernel saves
// both their parts.
bool amxReported(uint32_t leaf7_edx, uint64_t xcr0);

// Asks the kernel to let this process use tile registers, and says whether it does. A refusal is logged as a warning:
// what is computed without them is right and slower. The answer holds for every thread of the process.
bool requestAmx();

// Both, for this machine.
bool amxAvailable();

}  // namespace chorus
