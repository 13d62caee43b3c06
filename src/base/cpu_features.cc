#include "base/cpu_features.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "base/amx.h"
#include "base/error.h"
#include "base/free_memory.h"

namespace chorus {
namespace {

constexpr std::string_view kNames[] = {"scalar",   "avx2", "avx512", "avx512_vnni", "avx512_bf16",
                                       "amx_int8", "amx",  "neon",   "neon_dot"};

std::vector<Isa> detect() {
  std::vector<Isa> isas{Isa::kScalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Each set requires every feature that the compiler may use in its code, since a hypervisor can hide any of them.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (!avx2) return isas;
  isas.push_back(Isa::kAvx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return isas;
  isas.push_back(Isa::kAvx512);
  if (!__builtin_cpu_supports("avx512vnni")) return isas;
  isas.push_back(Isa::kAvx512Vnni);
  if (!__builtin_cpu_supports("avx512bf16")) return isas;
  isas.push_back(Isa::kAvx512Bf16);
  if (!amxAvailable()) return isas;
  isas.push_back(Isa::kAmxInt8);
  isas.push_back(Isa::kAmx);
#elif defined(__aarch64__)
  isas.push_back(Isa::kNeon);
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) isas.push_back(Isa::kNeonDot);
#endif
  return isas;
}

// First line of a control file of this process's cgroup (v2); empty when the file is missing.
std::string cgroupValue(const char* file) {
  std::ifstream self("/proc/self/cgroup");
  std::string line, dir;
  while (std::getline(self, line)) {
    if (line.rfind("0::", 0) == 0) dir = line.substr(3);
  }
  for (const std::string& base : {"/sys/fs/cgroup" + dir, std::string("/sys/fs/cgroup")}) {
    std::ifstream in(base + "/" + file);
    std::string contents;
    if (std::getline(in, contents)) return contents;
  }
  return "";
}

double cgroupCpuQuota() {
  std::istringstream words(cgroupValue("cpu.max"));
  std::string quota;
  double period = 0;
  if (words >> quota >> period && quota != "max" && period > 0) return std::strtod(quota.c_str(), nullptr) / period;
  return std::numeric_limits<double>::infinity();
}
}  // namespace

std::string_view isaName(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> isaFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

bool includes(Isa whole, Isa part) {
  if ((whole == Isa::kAmx || whole == Isa::kAmxInt8) && part == Isa::kAvx512Bf16) return false;
  const bool same_architecture = (part >= Isa::kNeon) == (whole >= Isa::kNeon);
  return part == Isa::kScalar || (part <= whole && same_architecture);
}

const std::vector<Isa>& availableIsas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

std::string availableIsaNames() {
  std::string names;
  for (const Isa isa : availableIsas()) names += (names.empty() ? "" : ", ") + std::string(isaName(isa));
  return names;
}

Isa requireIsa(std::string_view name) {
  const auto isa = isaFromName(name);
  const auto& isas = availableIsas();
  if (!isa || std::find(isas.begin(), isas.end(), *isa) == isas.end()) {
    fail(ErrorCode::kInvalidArgument, "isa {}: this machine runs {}", name, availableIsaNames());
  }
  return *isa;
}

int availableCores() {
  cpu_set_t set;
  int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  const double quota = cgroupCpuQuota();
  if (quota < cores) cores = static_cast<int>(std::ceil(quota));
  return std::max(cores, 1);
}

size_t availableMemory() { return freeMemory(); }

size_t residentMemory() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128];
  const ssize_t length = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  char* resident = nullptr;
  std::strtoull(text, &resident, 10);  // skips the first field, the total program size
  return std::strtoull(resident, nullptr, 10) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace chorus
