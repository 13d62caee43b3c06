#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/system_error.h"

namespace chorus {
namespace {

struct OpenFile {
  Descriptor fd;
  size_t size;
};

int64_t nanoseconds(const timespec& t) { return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec; }

// O_NONBLOCK: opening a FIFO must not block; it is refused afterwards.
OpenFile openRegular(const std::filesystem::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) fail(errorCodeOfErrno(errno), "{}: {}", path.string(), std::strerror(errno));
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) fail(errorCodeOfErrno(errno), "{}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::kCorrupt, "{}: not a regular file", path.string());
  return {std::move(fd), static_cast<size_t>(info.st_size)};
}

// True for a device, a pipe, or a link to one such as /dev/stdout: renaming a file over it would replace something that
// other programs use.
bool isThereButNoFile(const std::filesystem::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

// Resolves links, so that the rename replaces the target of a link and not the link itself.
std::filesystem::path behindLinks(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  return error ? path : file;
}

// Returns false and sets errno when not all bytes could be written.
bool writeAll(int fd, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t n = ::write(fd, contents.data(), contents.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    contents.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}
}  // namespace

std::optional<FileStamp> stampOf(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail(errorCodeOfErrno(errno), "{}: {}", path.string(), std::strerror(errno));
  }
  return stampOfStatus(status);
}

FileStamp stampOfStatus(const struct stat& status) {
  return {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino),
          static_cast<uint64_t>(status.st_size), nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

int64_t ageNs(const FileStamp& stamp) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now) - stamp.changed_ns;
}

std::string readFile(const std::filesystem::path& path, size_t max_bytes) {
  return readDescriptor(openRegular(path).fd.get(), path, max_bytes);
}

std::string readDescriptor(int fd, const std::filesystem::path& path, size_t max_bytes) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) fail(errorCodeOfErrno(errno), "{}: {}", path.string(), std::strerror(errno));
  const auto size = static_cast<size_t>(info.st_size);
  if (size > max_bytes) {
    fail(ErrorCode::kCorrupt, "{}: the file has {} bytes; the limit is {}", path.string(), size, max_bytes);
  }
  std::string contents(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, contents.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errorCodeOfErrno(errno), "{}: {}", path.string(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  contents.resize(done);
  return contents;
}

void writeFileAtomically(const std::filesystem::path& path, std::string_view contents) {
  if (isThereButNoFile(path)) {
    const Descriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd.get() < 0 || !writeAll(fd.get(), contents)) {
      fail(ErrorCode::kExhausted, "{}: cannot write: {}", path.string(), std::strerror(errno));
    }
    return;
  }
  const std::filesystem::path file = behindLinks(path);
  std::string temporary = file.string() + ".XXXXXX";
  const Descriptor fd(::mkstemp(temporary.data()));
  if (fd.get() < 0) fail(ErrorCode::kExhausted, "{}: {}", path.string(), std::strerror(errno));
  ::fchmod(fd.get(), 0644);
  const bool ok =
      writeAll(fd.get(), contents) && ::fsync(fd.get()) == 0 && ::rename(temporary.c_str(), file.c_str()) == 0;
  if (!ok) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    fail(ErrorCode::kExhausted, "{}: cannot write: {}", path.string(), std::strerror(reason));
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const OpenFile file = openRegular(path);
  if (file.size == 0) fail(ErrorCode::kCorrupt, "{}: the file is empty", path.string());
  void* address = ::mmap(nullptr, file.size, PROT_READ, MAP_SHARED, file.fd.get(), 0);
  if (address == MAP_FAILED) fail(ErrorCode::kExhausted, "{}: cannot map: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
  size_ = file.size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

void MappedFile::willNeed() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

}  // namespace chorus
