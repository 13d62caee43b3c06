// Memory for the contents of files: limits what all readers hold at the same time, and keeps memory for files that are
// read later, because touching new pages takes as long as reading a file.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"

namespace chorus {

class BackgroundThrottle;

// Thread-safe. Owned by a shared_ptr.
class FileMemory : public std::enable_shared_from_this<FileMemory> {
 public:
  // limit: most bytes that reservations and kept memory have together. setting: what raises the limit, for errors.
  explicit FileMemory(size_t limit = std::numeric_limits<size_t>::max(), std::string setting = {});
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // A part of the limit, which is free again when the object is destroyed.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { end(); }

   private:
    friend class FileMemory;
    Reservation(std::shared_ptr<FileMemory> from, size_t bytes) : from_(std::move(from)), bytes_(bytes) {}
    void end() noexcept;
    std::shared_ptr<FileMemory> from_;  // null: nothing is reserved
    size_t bytes_ = 0;
  };
  // Waits until the bytes are free. A thread must not call this while it holds a reservation: two such threads could
  // wait for each other for ever. Files of at most kUncounted bytes need no reservation. A quarter of the limit is only
  // for files of at most isSmall() bytes, so that these do not wait for larger ones. Within each of the two kinds,
  // calls are served in their order. throttle: may be null. During the wait it is charged kWaitBytes every kLook, so
  // that its clock can end the wait by an exception; at the end, the time is added by addWait(). Throws
  // Error(kUnsupported), which names `what`, if the bytes exceed mostOf().
  Reservation reserve(size_t bytes, std::string_view what, BackgroundThrottle* throttle = nullptr);
  static constexpr std::chrono::milliseconds kLook{20};
  static constexpr size_t kWaitBytes = size_t{16} << 20;
  bool isSmall(uint64_t bytes) const { return bytes <= limit_ / 4; }
  // Most bytes of one reservation: three quarters of the limit.
  static constexpr size_t mostOf(size_t limit) { return limit - limit / 4; }
  size_t limit() const { return limit_; }

  // Memory of at least `size` bytes, and at most an eighth more, with undefined contents.
  AlignedBuffer take(size_t size);
  // Takes back memory that take() returned. Keeps it if it is between kLeast and kMost bytes; only the kKept largest
  // buffers are kept, and only those for which the limit has room.
  void give(AlignedBuffer memory) noexcept;

  static constexpr size_t kUncounted = size_t{1} << 20;
  static constexpr size_t kLeast = size_t{1} << 20;  // smaller memory costs little to touch
  static constexpr size_t kMost = size_t{64} << 20;  // larger memory is needed too rarely
  static constexpr size_t kKept = 2;

 private:
  // Reservations of one kind of files.
  struct Part {
    size_t limit = 0, used = 0;
    std::deque<uint64_t> waiting;  // calls of reserve(), the oldest first
  };
  Part& partFor(size_t bytes) { return isSmall(bytes) ? small_ : large_; }
  // Moves kept buffers to `dropped`, which has room for all, until the limit holds.
  void dropKept(std::vector<AlignedBuffer>& dropped) noexcept;
  void release(size_t bytes) noexcept;

  const size_t limit_;
  const std::string setting_;
  std::mutex mutex_;
  std::condition_variable freed_;
  Part small_, large_;
  uint64_t calls_ = 0;
  std::vector<AlignedBuffer> kept_;  // ascending by size
  size_t kept_bytes_ = 0;
};

}  // namespace chorus
