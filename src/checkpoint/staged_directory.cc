#include "checkpoint/staged_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"

namespace chorus {
namespace {

void syncDirectory(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

// "dir/" and "dir/." name the same place as "dir"; a sibling needs the last real component.
std::filesystem::path normalized(const std::filesystem::path& path) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "the output directory has no name; give one");
  std::filesystem::path absolute = std::filesystem::absolute(path).lexically_normal();
  if (absolute.filename().empty()) absolute = absolute.parent_path();
  return absolute;
}
}  // namespace

StagedDirectory::StagedDirectory(std::filesystem::path target, std::string_view what,
                                 const std::function<bool(const std::filesystem::path&)>& replaceable)
    : target_(normalized(target)) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(target_, error);
  if (std::filesystem::exists(status)) {
    if (!std::filesystem::is_directory(status)) {
      fail(ErrorCode::kInvalidArgument, "{}: exists and is not a directory; choose another output directory",
           target_.string());
    }
    if (!std::filesystem::is_empty(target_, error) && !replaceable(target_)) {
      fail(ErrorCode::kInvalidArgument, "{}: holds files that are not {}; choose another output directory",
           target_.string(), what);
    }
  }
  std::filesystem::create_directories(target_.parent_path(), error);
  std::string name = (target_.parent_path() / fmt::format(".{}.XXXXXX", target_.filename().string())).string();
  if (::mkdtemp(name.data()) == nullptr) {
    fail(ErrorCode::kExhausted, "{}: cannot create the output directory: {}", target_.string(), std::strerror(errno));
  }
  staging_ = name;
  ::chmod(staging_.c_str(), 0755);
}

StagedDirectory::~StagedDirectory() {
  std::error_code ignored;
  if (!staging_.empty()) std::filesystem::remove_all(staging_, ignored);
}

void StagedDirectory::publish() {
  syncDirectory(staging_);
  if (::rename(staging_.c_str(), target_.c_str()) == 0) {
    staging_.clear();
  } else if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    // File systems without an atomic exchange: the old directory steps aside first.
    const std::string aside = staging_.string() + ".old";
    if (::rename(target_.c_str(), aside.c_str()) != 0 || ::rename(staging_.c_str(), target_.c_str()) != 0) {
      const int reason = errno;
      ::rename(aside.c_str(), target_.c_str());
      fail(ErrorCode::kExhausted, "{}: cannot put the new directory in place: {}", target_.string(),
           std::strerror(reason));
    }
    staging_ = aside;
  }
  syncDirectory(target_.parent_path());
}

}  // namespace chorus
