// Questions about paths that may be anything.
#pragma once

#include <filesystem>
#include <system_error>

namespace chorus {

// Whether the path is a regular file or a link to one. Throws nothing: a path that cannot be read is none.
inline bool isFile(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace chorus
