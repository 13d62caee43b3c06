#include "cli/backend_flags.h"

#include "base/cpu_features.h"
#include "kernels/backend.h"

namespace chorus {

void addIsaFlag(CLI::App& command, std::string& isa) {
  command
      .add_option("--isa", isa,
                  "Instruction set that this machine has: scalar, avx2, avx512, avx512_vnni, avx512_bf16, amx, neon; "
                  "default: the fastest")
      ->envname("CHORUS_ISA");
}

void addBackendFlags(CLI::App& command, std::string& backend, std::string& isa) {
  command
      .add_option("--backend", backend,
                  "cpu; for comparison: reference (plain loops), guarded (memory closed outside ops)")
      ->capture_default_str();
  addIsaFlag(command, isa);
}

std::optional<std::string> checkedIsa(const std::string& isa) {
  if (isa.empty()) return std::nullopt;
  requireIsa(isa);
  return isa;
}

std::optional<std::string> checkedIsa(const std::string& isa, const std::string& backend) {
  requireBackendName(backend);
  return checkedIsa(isa);
}

}  // namespace chorus
