#include "base/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/system_error.h"

namespace chorus {
namespace {

// closedir also closes the descriptor that fdopendir was given.
struct CloseDirectory {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

// True for a directory and for a link, since a link may lead to a directory.
bool mayBeDirectory(int dir, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR || entry.d_type == DT_LNK;
  struct stat info{};
  if (::fstatat(dir, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
  return S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode);
}

}  // namespace

std::shared_ptr<const Directory> Directory::open(const std::filesystem::path& path, Links links) {
  Descriptor fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail(errorCodeOfErrno(errno), "{}: {}", path.string(), std::strerror(errno));
  return std::shared_ptr<const Directory>(new Directory(std::move(fd), path, links));
}

OpenDirectory openerOf(std::filesystem::path path) {
  return [path = std::move(path)] { return Directory::open(path); };
}

void Directory::refuse(const std::string& name, int reason) const {
  const std::string path = pathOf(name).string();
  if (links_ != Links::kFollow && (reason == EXDEV || reason == ELOOP)) {
    fail(ErrorCode::kInvalidArgument,
         "{}: a link that leads in a loop or out of its directory; copy the files into the directory, or allow links "
         "with --lora_dir_links follow",
         path);
  }
  fail(errorCodeOfErrno(reason), "{}: {}", path, std::strerror(reason));
}

std::shared_ptr<const Directory> Directory::openDirectory(const std::string& name, Links links) const {
  Descriptor fd(openName(name, O_RDONLY | O_DIRECTORY));
  if (!fd) refuse(name, errno);
  Bounds bounds;
  if (bounds_.above != nullptr && links == Links::kInside) bounds = {bounds_.above, bounds_.prefix + name + "/"};
  return std::shared_ptr<const Directory>(new Directory(std::move(fd), pathOf(name), links, std::move(bounds)));
}

std::shared_ptr<const Directory> Directory::openWithin(const std::string& name) const {
  Descriptor fd(openName(name, O_RDONLY | O_DIRECTORY));
  if (!fd) refuse(name, errno);
  Bounds bounds;
  if (links_ != Links::kFollow) {
    auto above = bounds_.above;
    if (above == nullptr) {
      Descriptor own(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
      if (!own) refuse(name, errno);
      above = std::make_shared<const Descriptor>(std::move(own));
    }
    bounds = {std::move(above), bounds_.prefix + name + "/"};
  }
  return std::shared_ptr<const Directory>(new Directory(std::move(fd), pathOf(name), links_, std::move(bounds)));
}

std::shared_ptr<const Directory> Directory::withOnly(std::string name) const {
  Descriptor fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd) refuse(name, errno);
  const std::shared_ptr<Directory> only(new Directory(std::move(fd), path_, links_, bounds_));
  only->only_ = std::move(name);
  return only;
}

int Directory::openName(const std::string& name, int flags) const {
  if (hides(name)) {
    errno = ENOENT;
    return -1;
  }
  if (bounds_.above == nullptr) return openBeneath(fd_.get(), name, flags, links_);
  return openBeneath(bounds_.above->get(), bounds_.prefix + name, flags, links_);
}

Descriptor Directory::openFile(const std::string& name) const {
  // O_NONBLOCK: opening a FIFO must not block; it is refused below.
  Descriptor fd(openName(name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  // Opening a socket and some devices fails with ENXIO.
  if (!fd && errno == ENXIO) fail(ErrorCode::kCorrupt, "{}: not a regular file", pathOf(name).string());
  if (!fd) refuse(name, errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) refuse(name, errno);
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::kCorrupt, "{}: not a regular file", pathOf(name).string());
  return fd;
}

std::string Directory::readFile(const std::string& name, size_t max_bytes) const {
  return readDescriptor(openFile(name).get(), pathOf(name), max_bytes);
}

std::optional<FileStamp> Directory::stampOf(const std::string& name) const {
  const Descriptor fd(openName(name, O_PATH));
  if (!fd) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    refuse(name, errno);
  }
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) refuse(name, errno);
  return stampOfStatus(info);
}

bool Directory::isDirectory(const std::string& name) const {
  return static_cast<bool>(Descriptor(openName(name, O_PATH | O_DIRECTORY)));
}

Directory::Kind Directory::kindOf(const std::string& name) const {
  if (hides(name)) return Kind::kNothing;
  Descriptor parent;
  const size_t slash = name.rfind('/');
  if (slash != std::string::npos) {
    parent = Descriptor(openName(name.substr(0, slash), O_PATH | O_DIRECTORY));
    if (!parent) return Kind::kNothing;
  }
  const int directory = parent ? parent.get() : fd_.get();
  const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
  struct stat info{};
  if (::fstatat(directory, last.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return Kind::kNothing;
  if (S_ISREG(info.st_mode)) return Kind::kFile;
  if (S_ISDIR(info.st_mode)) return Kind::kDirectory;
  return S_ISLNK(info.st_mode) ? Kind::kLink : Kind::kOther;
}

Directory::Names Directory::names(size_t most) const { return readNames(most, false); }
Directory::Names Directory::directoryNames(size_t most) const { return readNames(most, true); }

Directory::Names Directory::readNames(size_t most, bool directories_only) const {
  if (only_) {
    const Kind kind = kindOf(*only_);
    const bool counts = directories_only ? kind == Kind::kDirectory || kind == Kind::kLink : kind != Kind::kNothing;
    if (counts && most == 0) return {.complete = false};
    return {.names = counts ? std::vector<std::string>{*only_} : std::vector<std::string>()};
  }
  // Opens a new descriptor: the read position belongs to the descriptor, and fd_ is shared by threads.
  const int fd = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseDirectory> dir(fd >= 0 ? ::fdopendir(fd) : nullptr);
  if (dir == nullptr) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    fail(errorCodeOfErrno(reason), "{}: {}", path_.string(), std::strerror(reason));
  }
  Names result;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) {
      if (errno != 0) fail(errorCodeOfErrno(errno), "{}: {}", path_.string(), std::strerror(errno));
      break;
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || (directories_only && !mayBeDirectory(fd_.get(), *entry))) continue;
    if (result.names.size() == most) {
      result.complete = false;
      break;
    }
    result.names.emplace_back(name);
  }
  std::sort(result.names.begin(), result.names.end());
  return result;
}

}  // namespace chorus
