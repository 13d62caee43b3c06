#include "models/architecture.h"

#include "base/error.h"
#include "models/llama.h"

namespace chorus {
namespace {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {llamaArchitecture(), mistralArchitecture()};
  return all;
}
}  // namespace

const Architecture& findArchitecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == name) return architecture;
    known += (known.empty() ? "" : ", ") + architecture.name;
  }
  fail(ErrorCode::kUnsupported, "architecture '{}' is not supported; supported are {}", name, known);
}

}  // namespace chorus
