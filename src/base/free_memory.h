// How much memory new allocations may take, by what the kernel's files say about the machine and its control groups.
#pragma once

#include <cstddef>
#include <filesystem>

namespace chorus {

// Bytes that can be allocated: the least of what the machine has left (MemAvailable of /proc/meminfo) and of the room
// in every control group with a memory limit, from the process's own up to the root. Version 1 and version 2 groups
// count. Room is limit - usage + inactive page cache: the kernel drops that cache before it fails an allocation. Files
// that are missing, and values that are no numbers, set no limit. root: where /proc and /sys are mounted.
size_t freeMemory(const std::filesystem::path& root = "/");

}  // namespace chorus
