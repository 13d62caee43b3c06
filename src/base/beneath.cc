#include "base/beneath.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"

namespace chorus {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit
// Limit on directories that one walk keeps open. openat2(2) needs no such limit: it keeps none open.
constexpr size_t kMaxDepth = 64;
// If a directory is moved during a lookup, the lookup is retried up to this many times.
constexpr int kTries = 64;

int openAt(int dir, const std::string& name, int flags) {
  while (true) {
    const int fd = ::openat(dir, name.c_str(), flags | O_CLOEXEC);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

class Walk {
 public:
  Walk(int root, int flags, Links links) : root_(root), flags_(flags), links_(links) {}

  // The descriptor, or -1 with errno.
  int open(const std::string& name) {
    if (name.empty()) return failWith(ENOENT);
    if (name.size() >= PATH_MAX) return failWith(ENAMETOOLONG);
    if (!push(name)) return -1;
    while (!left_.empty()) {
      const std::string component = std::move(left_.front());
      left_.pop_front();
      if (component == ".") continue;
      if (component == "..") {
        if (above_.empty()) return failWith(EXDEV);
        above_.pop_back();
        continue;
      }
      if (left_.empty()) {
        const int fd = openLast(component);
        // ENOTDIR may mean that the component is a link and flags_ contains O_DIRECTORY.
        if (fd >= 0 || (errno != ELOOP && errno != ENOTDIR)) return fd;
      }
      if (!enter(component)) return -1;
    }
    return openAt(here(), ".", flags_);
  }

 private:
  static int failWith(int reason) {
    errno = reason;
    return -1;
  }
  static bool refuse(int reason) {
    errno = reason;
    return false;
  }
  int here() const { return above_.empty() ? root_ : above_.back().get(); }

  // Prepends the components of `name` to left_, the components that remain to be walked.
  bool push(std::string_view name) {
    if (name.starts_with('/')) return refuse(EXDEV);
    std::vector<std::string> components;
    while (!name.empty()) {
      const size_t slash = name.find('/');
      const std::string_view component = name.substr(0, slash);
      if (!component.empty()) components.emplace_back(component);
      if (slash == std::string_view::npos) break;
      name.remove_prefix(slash + 1);
      // With a trailing slash the path must name a directory.
      if (name.empty()) components.emplace_back(".");
    }
    left_.insert(left_.begin(), components.begin(), components.end());
    return true;
  }

  // Fails with ELOOP when the component is a link.
  int openLast(const std::string& component) const {
    if ((flags_ & O_PATH) == 0) return openAt(here(), component, flags_ | O_NOFOLLOW);
    const int fd = openAt(here(), component, flags_ | O_NOFOLLOW);
    struct stat info{};
    if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISLNK(info.st_mode)) return fd;
    ::close(fd);
    return failWith(ELOOP);
  }

  // Enters a directory, or prepends the target of a link to left_.
  bool enter(const std::string& component) {
    Descriptor next(openAt(here(), component, O_PATH | O_NOFOLLOW));
    struct stat info{};
    if (!next || ::fstat(next.get(), &info) != 0) return false;
    if (!S_ISLNK(info.st_mode)) {
      // EAGAIN: openLast found a link here, but it has been replaced by a file since then.
      if (!S_ISDIR(info.st_mode)) return refuse(left_.empty() && (flags_ & O_DIRECTORY) == 0 ? EAGAIN : ENOTDIR);
      if (above_.size() == kMaxDepth) return refuse(ENAMETOOLONG);
      above_.push_back(std::move(next));
      return true;
    }
    if (links_ == Links::kNone || ++links_seen_ > kMaxLinks) return refuse(ELOOP);
    struct statfs system{};
    if (::fstatfs(next.get(), &system) != 0) return false;
    if (system.f_type == PROC_SUPER_MAGIC) return refuse(ELOOP);
    std::string target(PATH_MAX, '\0');
    const ssize_t size = ::readlinkat(next.get(), "", target.data(), target.size());
    if (size < 0) return false;
    target.resize(static_cast<size_t>(size));
    if (target.empty()) return refuse(ENOENT);
    return push(target);
  }

  int root_, flags_;
  Links links_;
  std::vector<Descriptor> above_;  // directories from the root (exclusive) down to the current one
  std::deque<std::string> left_;
  int links_seen_ = 0;
};

}  // namespace

int openBeneathByComponents(int dir, const std::string& name, int flags, Links links) {
  for (int i = 0; i < kTries; ++i) {
    const int fd = Walk(dir, flags, links).open(name);
    if (fd >= 0 || errno != EAGAIN) return fd;
  }
  return -1;
}

int openBeneath(int dir, const std::string& name, int flags, Links links) {
  if (links == Links::kFollow) return openAt(dir, name, flags);
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  if (links == Links::kNone) how.resolve |= RESOLVE_NO_SYMLINKS;
  for (int i = 0; i < kTries; ++i) {
    const auto fd = static_cast<int>(::syscall(SYS_openat2, dir, name.c_str(), &how, sizeof how));
    if (fd >= 0) return fd;
    // EPERM: a sandbox blocks openat2.
    if (errno == ENOSYS || errno == EPERM) return openBeneathByComponents(dir, name, flags, links);
    if (errno != EAGAIN && errno != EINTR) return -1;
  }
  return -1;
}

}  // namespace chorus
