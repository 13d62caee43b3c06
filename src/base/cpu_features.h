// What this machine can run: instruction sets, cores, memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// Ordered: a later set has the earlier ones of its architecture.
enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx, kNeon };

std::string_view isaName(Isa isa);
std::optional<Isa> isaFromName(std::string_view name);
// Whether code for `part` runs where `whole` is chosen. AMX has AVX-512 BF16 and does not include it: where there are
// tiles, dot products are slower than the multiply-adds that they would displace.
bool includes(Isa whole, Isa part);
// The sets this machine runs, least first; kScalar is always there.
const std::vector<Isa>& availableIsas();
// Their names, "scalar, avx2".
std::string availableIsaNames();
// The set of that name if this machine runs it. Throws Error(kInvalidArgument) that lists those it runs.
Isa requireIsa(std::string_view name);

// min(cores this process may run on, cgroup CPU quota rounded up), at least 1.
int availableCores();
// What the cgroup and the machine leave for new allocations, in bytes.
size_t availableMemory();
// Bytes of this process that are in memory; 0 where the system does not say.
size_t residentMemory();

}  // namespace chorus
