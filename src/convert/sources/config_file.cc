#include "convert/sources/config_file.h"

#include <exception>

#include "checkpoint/config.h"

namespace chorus {

bool configHas(const std::filesystem::path& dir, const char* key) {
  try {
    const auto path = dir / "config.json";
    if (!std::filesystem::is_regular_file(path)) return false;
    const Json config = readModelConfigFile(path);
    return config.is_object() && config.contains(key);
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace chorus
