#include "models/architecture.h"

#include "base/error.h"
#include "models/llama.h"

namespace chorus {

std::vector<Architecture> builtInArchitectures() { return {llamaArchitecture(), mistralArchitecture()}; }

const Architecture& findArchitecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : knownArchitectures()) {
    if (architecture.name == name) return architecture;
    known += (known.empty() ? "" : ", ") + architecture.name;
  }
  fail(ErrorCode::kUnsupported, "architecture '{}' is not supported; supported are {}", name, known);
}

}  // namespace chorus
