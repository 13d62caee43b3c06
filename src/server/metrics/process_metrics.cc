#include "server/metrics/process_metrics.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace chorus::server {
namespace {

std::string textOf(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The fields of /proc/self/stat from the third on, which is the state. The second, the program's name, may hold spaces.
std::vector<std::string> statFields() {
  const std::string text = textOf("/proc/self/stat");
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream in(text.substr(end + 1));
  return {std::istream_iterator<std::string>(in), {}};
}

// Seconds since 1970 at which the system started; 0 if not known.
double bootTime() {
  std::istringstream in(textOf("/proc/stat"));
  std::string word;
  while (in >> word) {
    double seconds = 0;
    if (word == "btime" && in >> seconds) return seconds;
  }
  return 0;
}

}  // namespace

void addProcessMetrics(MetricFamilies& families) {
  // Indices in proc(5)'s table, less 3.
  constexpr size_t kUserTime = 11, kSystemTime = 12, kStartTime = 19, kVirtualBytes = 20, kResidentPages = 21;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const std::vector<std::string> fields = statFields();
  if (fields.size() > kResidentPages) {
    const auto at = [&](size_t index) { return std::strtod(fields[index].c_str(), nullptr); };
    families.counter("process_cpu_seconds_total", "Processor time, user and system",
                     (at(kUserTime) + at(kSystemTime)) / ticks);
    families.gauge("process_resident_memory_bytes", "Resident memory", at(kResidentPages) * page);
    families.gauge("process_virtual_memory_bytes", "Virtual memory", at(kVirtualBytes));
    if (const double boot = bootTime(); boot > 0) {
      families.gauge("process_start_time_seconds", "Start of the process, in seconds since 1970",
                     boot + at(kStartTime) / ticks);
    }
  }
  std::error_code error;
  int64_t open = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++open;
  }
  if (!error) families.gauge("process_open_fds", "Open file descriptors", static_cast<double>(open));
}

}  // namespace chorus::server
