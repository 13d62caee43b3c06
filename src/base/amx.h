// Whether this process may use AMX: the processor and the kernel must support it, and the kernel must grant permission
// on request.
#pragma once

#include <cstdint>

namespace chorus {

// True when EDX of CPUID leaf 7 reports AMX tiles, AMX bfloat16 and AMX int8, and XCR0 shows that the kernel saves both
// AMX state components (tile configuration and tile data).
bool amxReported(uint32_t leaf7_edx, uint64_t xcr0);

// Requests permission from the kernel to use the tile registers; returns whether it was granted. A refusal is logged as
// a warning: results stay correct but are computed more slowly. The permission applies to every thread of the process.
bool requestAmx();

// True when this machine reports AMX (amxReported) and the kernel permits it (requestAmx).
bool amxAvailable();

}  // namespace chorus
