#include "cli/backend_flags.h"

#include <algorithm>

#include "base/cpu_features.h"
#include "base/error.h"
#include "kernels/backend.h"

namespace chorus {

void addIsaFlag(CLI::App& command, std::string& isa) {
  command
      .add_option_function<std::string>(
          "--isa",
          [&isa](const std::string& name) {
            requireIsa(name);
            isa = name;
          },
          fmt::format("Instruction set: {}; default: the best there is", availableIsaNames()))
      ->envname("CHORUS_ISA");
}

void addBackendFlags(CLI::App& command, std::string& backend, std::string& isa) {
  command
      .add_option_function<std::string>(
          "--backend",
          [&backend](const std::string& name) {
            const auto& names = backendNames();
            if (std::find(names.begin(), names.end(), name) == names.end()) {
              fail(ErrorCode::kInvalidArgument, "--backend {}: not one of {}", name, fmt::join(names, ", "));
            }
            backend = name;
          },
          "cpu; for comparison: reference (plain loops), guarded (memory closed outside ops)")
      ->default_str(backend);
  addIsaFlag(command, isa);
}

}  // namespace chorus
