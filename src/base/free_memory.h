// Computes how much memory new allocations may take, from the kernel's files about the machine and its control groups.
#pragma once

#include <cstddef>
#include <filesystem>

namespace chorus {

// Bytes that can be allocated: the minimum of
//   the machine's free memory (MemAvailable of /proc/meminfo) and
//   limit - usage + inactive page cache of each control group (v1 or v2) from the process's own up to the root.
// Inactive page cache counts as free because the kernel drops it before it fails an allocation. Missing files and
// values that are not numbers set no limit. root: directory that contains proc/ and sys/.
size_t freeMemory(const std::filesystem::path& root = "/");

}  // namespace chorus
