// Instruction sets, cores and memory of this machine.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// Ordered: a machine that has one set also has the earlier sets of the same architecture. kAmxInt8 multiplies integers
// by AMX and floats as kAvx512Vnni does; kAmx multiplies bfloat16 by AMX too. kNeonDot has the dot products of bytes of
// Armv8.2. With all sets but kAvx512Bf16 and kAmx, an engine's results have the same bits (isPortable in
// kernels/linear/linear.h).
enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmxInt8, kAmx, kNeon, kNeonDot };

std::string_view isaName(Isa isa);
std::optional<Isa> isaFromName(std::string_view name);
// Whether kernels for `part` are used when the set `whole` is chosen. The sets of AMX do not include kAvx512Bf16
// although every AMX machine has it: beside tiles, its dot products are slower than the multiply-adds that they would
// replace.
bool includes(Isa whole, Isa part);
// The sets that this machine runs, in ascending order. Always contains kScalar.
const std::vector<Isa>& availableIsas();
// Names of availableIsas(), e.g. "scalar, avx2".
std::string availableIsaNames();
// The set called `name`. Throws Error(kInvalidArgument), listing the available sets, when this machine does not run it.
Isa requireIsa(std::string_view name);

// min(cores this process may run on, cgroup CPU quota rounded up), at least 1.
int availableCores();
// Bytes that new allocations may take, limited by the machine and by its control groups (base/free_memory.h).
size_t availableMemory();
// Resident set size of this process in bytes; 0 when the system does not report it.
size_t residentMemory();

}  // namespace chorus
