#include "base/file_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/background_throttle.h"
#include "base/checked.h"
#include "base/cpu_features.h"
#include "base/system_error.h"

namespace chorus {
namespace {

// Bytes of a file that PartsReader reads at a time: a directory of a zip archive is read by a few calls.
constexpr size_t kPieceBytes = size_t{32} << 10;

// Returns the number of bytes read; fewer than asked for only at the file's end.
size_t readAt(int descriptor, const std::string& path, size_t at, std::span<std::byte> out,
              BackgroundThrottle* throttle) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(descriptor, out.data() + done, std::min(out.size() - done, BackgroundThrottle::kPieceBytes),
                static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errorCodeOfErrno(errno), "{}: {}", path, std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
    chargeThrottle(throttle, static_cast<size_t>(n));
  }
  return done;
}

}  // namespace

const std::optional<FileStamp>& FileReader::see(const std::string& name) {
  return seen_.emplace_back(name, directory_->stampOf(name)).second;
}

bool FileReader::exists(const std::string& name) { return see(name).has_value() || directory_->hasName(name); }

std::shared_ptr<const FileContents> FileReader::read(const std::string& name, size_t max_bytes, size_t also) {
  return readHead(name, max_bytes, max_bytes, also).contents;
}

FileReader::Opened FileReader::open(const std::string& name, size_t max_file_bytes) {
  const std::optional<FileStamp> stamp = see(name);
  if (stamp) {
    const int64_t settles_in = kFileClockTickNs - ageNs(*stamp);
    if (settles_in > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(settles_in, kFileClockTickNs)));
  }
  Opened file{directory_->pathOf(name).string(), directory_->openFile(name)};
  struct stat status{};
  if (::fstat(file.descriptor.get(), &status) != 0) {
    fail(errorCodeOfErrno(errno), "{}: {}", file.path, std::strerror(errno));
  }
  if (stampOfStatus(status) != stamp) changed_ = true;
  file.size = static_cast<size_t>(status.st_size);
  if (file.size > max_file_bytes) {
    fail(ErrorCode::kCorrupt, "{}: the file has {} bytes; the limit is {}", file.path, file.size, max_file_bytes);
  }
  return file;
}

FileReader::Head FileReader::readHead(const std::string& name, size_t bytes, size_t max_file_bytes, size_t also) {
  const Opened file = open(name, max_file_bytes);
  const size_t size = std::min(file.size, bytes);
  FileMemory::Reservation reservation;
  if (memory_ != nullptr)
    reservation = memory_->reserve(checkedAdd(size, also, file.path.c_str()), file.path, throttle_);
  if (size > FileMemory::kMost) {
    const size_t available = availableMemory();
    if (size > available) {
      fail(ErrorCode::kExhausted, "{}: reading the file needs {} bytes, but only {} bytes of memory are free",
           file.path, size, available);
    }
  }
  AlignedBuffer memory = memory_ != nullptr ? memory_->take(size) : AlignedBuffer(size, AlignedBuffer::Pages::kSmall);
  const size_t done = readAt(file.descriptor.get(), file.path, 0, {memory.as<std::byte>(), size}, throttle_);
  return {std::make_shared<const FileContents>(std::move(memory), done, memory_, std::move(reservation)), file.size};
}

FileReader::PartsReader::PartsReader(const Opened& file, const AlignedBuffer& memory, size_t max_bytes,
                                     BackgroundThrottle* throttle)
    : file_(file),
      memory_(memory),
      max_bytes_(max_bytes),
      throttle_(throttle),
      read_((file.size + kPieceBytes - 1) / kPieceBytes) {}

void FileReader::PartsReader::need(size_t at, size_t size) {
  if (size == 0) return;
  for (size_t piece = at / kPieceBytes; piece <= (at + size - 1) / kPieceBytes; ++piece) {
    if (read_[piece]) continue;
    const size_t begin = piece * kPieceBytes;
    const size_t bytes = std::min(kPieceBytes, file_.size - begin);
    if (bytes > max_bytes_ - bytes_) {
      fail(ErrorCode::kUnsupported, "{}: its header has more than {} bytes", file_.path, max_bytes_);
    }
    const size_t done =
        readAt(file_.descriptor.get(), file_.path, begin, {memory_.as<std::byte>() + begin, bytes}, throttle_);
    if (done < bytes) fail(ErrorCode::kCorrupt, "{}: cut to {} bytes while it was read", file_.path, begin + done);
    read_[piece] = true;
    bytes_ += bytes;
  }
}

bool FileReader::unchanged() const {
  if (changed_) return false;
  return std::all_of(seen_.begin(), seen_.end(), [&](const Seen& seen) {
    try {
      return directory_->stampOf(seen.first) == seen.second;
    } catch (const Error&) {  // the name is now a refused link, or access to it is denied
      return false;
    }
  });
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
