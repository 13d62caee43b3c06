#include "base/file_memory.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/background_throttle.h"
#include "base/error.h"
#include "base/units.h"

namespace chorus {

namespace {

// Adds the time of its life to a throttle's waits.
class WaitTime {
 public:
  explicit WaitTime(BackgroundThrottle* throttle) : throttle_(throttle) {}
  ~WaitTime() {
    if (throttle_ != nullptr) throttle_->addWait(std::chrono::steady_clock::now() - begin_);
  }
  WaitTime(const WaitTime&) = delete;
  WaitTime& operator=(const WaitTime&) = delete;

 private:
  BackgroundThrottle* throttle_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

FileMemory::FileMemory(size_t limit, std::string setting) : limit_(limit), setting_(std::move(setting)) {
  small_.limit = limit / 4;
  large_.limit = mostOf(limit);
  kept_.reserve(kKept + 1);
}

FileMemory::Reservation::Reservation(Reservation&& other) noexcept
    : from_(std::move(other.from_)), bytes_(std::exchange(other.bytes_, 0)) {}

FileMemory::Reservation& FileMemory::Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  end();
  from_ = std::move(other.from_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void FileMemory::Reservation::end() noexcept {
  if (from_ != nullptr) from_->release(bytes_);
  from_ = nullptr;
}

FileMemory::Reservation FileMemory::reserve(size_t bytes, std::string_view what, BackgroundThrottle* throttle) {
  if (bytes <= kUncounted) return {};
  if (bytes > mostOf(limit_)) {
    fail(ErrorCode::kUnsupported,
         "{}: reading it needs {:.1f} MiB of memory, and one file may take {:.1f} MiB, three quarters of {}", what,
         mebibytes(bytes), mebibytes(mostOf(limit_)), setting_);
  }
  const WaitTime counted(throttle);
  std::vector<AlignedBuffer> dropped;  // freed after the lock
  dropped.reserve(kKept);
  std::unique_lock lock(mutex_);
  Part& part = partFor(bytes);
  const uint64_t call = ++calls_;
  part.waiting.push_back(call);
  const auto is_next = [&] { return part.waiting.front() == call && bytes <= part.limit - part.used; };
  try {
    while (!freed_.wait_for(lock, kLook, is_next)) {
      lock.unlock();
      chargeThrottle(throttle, kWaitBytes);
      lock.lock();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    std::erase(part.waiting, call);
    freed_.notify_all();
    throw;
  }
  part.waiting.pop_front();
  part.used += bytes;
  dropKept(dropped);
  lock.unlock();
  freed_.notify_all();  // the next call may have room too
  return {shared_from_this(), bytes};
}

void FileMemory::dropKept(std::vector<AlignedBuffer>& dropped) noexcept {
  while (!kept_.empty() && kept_bytes_ > limit_ - small_.used - large_.used) {
    kept_bytes_ -= kept_.front().size();
    dropped.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
  }
}

void FileMemory::release(size_t bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    partFor(bytes).used -= bytes;
  }
  freed_.notify_all();
}

AlignedBuffer FileMemory::take(size_t size) {
  if (size >= kLeast) {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) {
      return kept.size() >= size && kept.size() <= size + size / 8;
    });
    if (fits != kept_.end()) {
      AlignedBuffer taken = std::move(*fits);
      kept_.erase(fits);
      kept_bytes_ -= taken.size();
      return taken;
    }
  }
  return AlignedBuffer(size, AlignedBuffer::Pages::kSmall);
}

void FileMemory::give(AlignedBuffer memory) noexcept {
  if (memory.size() < kLeast || memory.size() > kMost) return;
  AlignedBuffer dropped;  // freed after the lock
  const std::lock_guard lock(mutex_);
  if (memory.size() + kept_bytes_ > limit_ - small_.used - large_.used) {
    dropped = std::move(memory);
    return;
  }
  const auto place =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept.size() > memory.size(); });
  kept_bytes_ += memory.size();
  kept_.insert(place, std::move(memory));  // allocates nothing: the constructor reserved the room
  if (kept_.size() <= kKept) return;
  dropped = std::move(kept_.front());
  kept_bytes_ -= dropped.size();
  kept_.erase(kept_.begin());
}

}  // namespace chorus
