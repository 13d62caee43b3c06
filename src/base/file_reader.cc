#include "base/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/pace.h"

namespace chorus {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      // O_NONBLOCK: a FIFO is refused, not waited for.
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    if (fd_ < 0) fail(ErrorCode::kNotFound, "{}: {}", path.string(), std::strerror(errno));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A thread that reads one adapter after another uses the same memory for them: touching fresh pages costs as much as
// reading. Larger files are too rare to keep theirs, small ones need none.
constexpr size_t kLeastKept = size_t{1} << 20;
constexpr size_t kMostKept = size_t{64} << 20;
thread_local AlignedBuffer kept_memory;

AlignedBuffer memoryFor(size_t size) {
  if (size >= kLeastKept && kept_memory.size() >= size) return std::exchange(kept_memory, {});
  if (size >= kLeastKept) kept_memory = {};
  return AlignedBuffer(size, AlignedBuffer::Pages::kSmall);
}

}  // namespace

FileContents::~FileContents() {
  if (memory_.size() >= kLeastKept && memory_.size() <= kMostKept && memory_.size() > kept_memory.size())
    std::swap(kept_memory, memory_);
}

const std::optional<FileStamp>& FileReader::see(const std::filesystem::path& path) {
  return seen_.emplace_back(path, stampOf(path)).second;
}

bool FileReader::exists(const std::filesystem::path& path) {
  return see(path).has_value() || std::filesystem::is_symlink(path);
}

std::shared_ptr<const FileContents> FileReader::read(const std::filesystem::path& path, size_t max_bytes) {
  const std::optional<FileStamp> stamp = see(path);
  if (stamp) {
    const int64_t settles_in = kFileClockTickNs - ageNs(*stamp);
    if (settles_in > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(settles_in, kFileClockTickNs)));
  }
  const Descriptor fd(path);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) fail(ErrorCode::kNotFound, "{}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::kCorrupt, "{}: not a regular file", path.string());
  const auto size = static_cast<size_t>(status.st_size);
  if (size > max_bytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes, more than the limit of {}", path.string(), size, max_bytes);
  }
  AlignedBuffer memory = memoryFor(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), memory.as<std::byte>() + done, std::min(size - done, Pace::kPieceBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::kNotFound, "{}: {}", path.string(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
    worked(static_cast<size_t>(n));
  }
  return std::make_shared<const FileContents>(std::move(memory), done);
}

bool FileReader::unchanged() const {
  return std::all_of(seen_.begin(), seen_.end(), [](const Seen& seen) { return stampOf(seen.first) == seen.second; });
}

std::vector<FileStamp> FileReader::stamps() const {
  std::vector<FileStamp> stamps;
  for (const Seen& seen : seen_) {
    if (seen.second) stamps.push_back(*seen.second);
  }
  return stamps;
}

int64_t FileReader::newestChangeNs() const {
  int64_t newest = 0;
  for (const Seen& seen : seen_) {
    if (seen.second) newest = std::max(newest, seen.second->changed_ns);
  }
  return newest;
}

std::chrono::nanoseconds quietIn(int64_t newest_change_ns) {
  constexpr std::chrono::nanoseconds kQuiet = std::chrono::seconds(1);
  FileStamp newest;
  newest.changed_ns = newest_change_ns;
  return kQuiet - std::clamp<std::chrono::nanoseconds>(std::chrono::nanoseconds(ageNs(newest)), {}, kQuiet);
}

}  // namespace chorus
