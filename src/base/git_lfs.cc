#include "base/git_lfs.h"

#include "base/error.h"

namespace chorus {

void refuseGitLfsPointer(std::string_view text, std::string_view source) {
  if (!text.starts_with("version https://git-lfs")) return;
  fail(ErrorCode::kCorrupt, "{}: a Git LFS pointer, not the file itself; fetch it with `git lfs pull`", source);
}

void refuseGitLfsPointer(std::span<const std::byte> bytes, std::string_view source) {
  refuseGitLfsPointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, source);
}

}  // namespace chorus
