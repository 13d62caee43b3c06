#include "base/free_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace chorus {
namespace {

namespace fs = std::filesystem;

// File names of the memory controller in one version of control groups.
struct Controller {
  const char* limit;
  const char* usage;
  const char* inactive;  // a key of memory.stat
};
constexpr Controller kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Controller kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// nullopt for anything that is not an unsigned 64-bit decimal number, such as "max".
std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> firstNumber(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  return number(word);
}

// The value in the line "KEY VALUE" or "KEY VALUE UNIT" of a file.
std::optional<uint64_t> valueOf(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, value;
    if (words >> name >> value && name == key) return number(value);
  }
  return std::nullopt;
}

// Bytes that one group leaves for new allocations; the largest number when it sets no limit.
uint64_t roomOf(const fs::path& group, const Controller& files) {
  constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  const auto limit = firstNumber(group / files.limit);
  if (!limit) return kUnlimited;
  const uint64_t usage = firstNumber(group / files.usage).value_or(0);
  const uint64_t cache = std::min(usage, valueOf(group / "memory.stat", files.inactive).value_or(0));
  const uint64_t taken = usage - cache;
  return *limit > taken ? *limit - taken : 0;
}

// The minimum of roomOf() over a group and its ancestors. path: the group's path beneath the mount, from
// /proc/self/cgroup. In a container the mount may show another part of the hierarchy, so missing groups set no limit.
uint64_t leastRoom(const fs::path& mount, const std::string& path, const Controller& files) {
  uint64_t least = roomOf(mount, files);
  fs::path group = mount;
  for (const fs::path& component : fs::path(path).relative_path()) {
    if (component == "..") break;  // a group outside this process's namespace
    group /= component;
    least = std::min(least, roomOf(group, files));
  }
  return least;
}

bool listsMemory(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

size_t freeMemory(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  auto available = valueOf(meminfo, "MemAvailable:");
  if (!available) available = valueOf(meminfo, "MemFree:");
  constexpr uint64_t kMostKiB = std::numeric_limits<uint64_t>::max() / 1024;
  uint64_t least = std::min(available.value_or(0), kMostKiB) * 1024;

  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    // Each line is "hierarchy:controllers:path".
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      // Version 2 is mounted at `groups`, or at "unified" when version 1 hierarchies exist beside it.
      for (const fs::path& mount : {groups, groups / "unified"}) {
        least = std::min(least, leastRoom(mount, path, kVersion2));
      }
    } else if (listsMemory(controllers)) {
      for (const fs::path& mount : {groups / "memory", groups / std::string(controllers)}) {
        least = std::min(least, leastRoom(mount, path, kVersion1));
      }
    }
  }
  return static_cast<size_t>(least);
}

}  // namespace chorus
