#include "comm/local.h"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace chorus {
namespace {

// 1 MiB of floats per rank: small enough for the processor caches, large enough that the barriers cost little.
constexpr int64_t kPiece = int64_t{1} << 18;

size_t floatBytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

inline void pauseCpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Calls fn(packed offset, strided offset, count) for each contiguous run of floats of a [rows, cols] matrix.
template <typename F>
void forEachStretch(int64_t rows, int64_t cols, int64_t stride, F&& fn) {
  if (cols == stride) return fn(0, 0, rows * cols);
  for (int64_t row = 0; row < rows; ++row) fn(row * cols, row * stride, cols);
}

[[noreturn]] void failAborted() { fail(ErrorCode::kInternal, "another rank of the group failed"); }
}  // namespace

class LocalGroup::End final : public Communicator {
 public:
  End(LocalGroup& group, int32_t rank, Backend& backend) : group_(group), rank_(rank), backend_(backend) {}
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return group_.size_; }

  void allReduceSum(float* data, int64_t count, Stream stream) override {
    if (group_.size_ == 1) return;
    for (int64_t begin = 0; begin < count; begin += group_.piece_) {
      const int64_t piece = std::min(group_.piece_, count - begin);
      download(group_.slot(rank_), data + begin, piece, stream);
      group_.meet();
      group_.sumShare(rank_, piece);
      group_.meet();
      upload(data + begin, group_.result(), piece, stream);
    }
  }

  void allGatherColumns(const ConstMatrix& part, const Matrix& whole, Stream stream) override {
    assert(part.rows == whole.rows);
    assert(whole.cols <= group_.piece_ && whole.cols <= part.cols * group_.size_);
    const int64_t first = std::min(rank_ * part.cols, whole.cols);
    const int64_t kept = std::min(part.cols, whole.cols - first);
    // A slot holds packed rows of `part`, which padding can make wider than those of `whole`.
    const int64_t rows_at_once = std::max<int64_t>(1, group_.piece_ / std::max(whole.cols, part.cols));
    for (int64_t begin = 0; begin < part.rows; begin += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, part.rows - begin);
      float* own = group_.slot(rank_);
      forEachStretch(rows, part.cols, part.stride, [&](int64_t packed, int64_t at, int64_t count) {
        download(own + packed, part.data + begin * part.stride + at, count, stream);
      });
      group_.meet();
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(own + row * part.cols, kept, group_.result() + row * whole.cols + first);
      }
      group_.meet();
      forEachStretch(rows, whole.cols, whole.stride, [&](int64_t packed, int64_t at, int64_t count) {
        upload(whole.data + begin * whole.stride + at, group_.result() + packed, count, stream);
      });
    }
  }

  void send(const float* data, int64_t count, int32_t to, Stream stream) override {
    Channel& channel = group_.channel(rank_, to);
    for (int64_t begin = 0; begin < count; begin += group_.piece_) {
      group_.awaitChannel(channel, false);
      if (channel.staging.data() == nullptr) channel.staging = AlignedBuffer(floatBytes(group_.piece_));
      channel.count = std::min(group_.piece_, count - begin);
      download(channel.staging.as<float>(), data + begin, channel.count, stream);
      group_.setChannel(channel, true);
    }
  }

  void receive(float* data, int64_t count, int32_t from, Stream stream) override {
    Channel& channel = group_.channel(from, rank_);
    for (int64_t begin = 0; begin < count; begin += group_.piece_) {
      group_.awaitChannel(channel, true);
      const int64_t piece = std::min(group_.piece_, count - begin);
      if (channel.count != piece) {
        fail(ErrorCode::kInternal, "rank {} receives {} values where rank {} sends {}", rank_, piece, from,
             channel.count);
      }
      upload(data + begin, channel.staging.as<float>(), piece, stream);
      group_.setChannel(channel, false);
    }
  }

 private:
  void download(float* host, const float* device, int64_t count, Stream stream) {
    backend_.download(host, device, floatBytes(count), stream);
    backend_.synchronize(stream);
  }
  void upload(float* device, const float* host, int64_t count, Stream stream) {
    backend_.upload(device, host, floatBytes(count), stream);
    backend_.synchronize(stream);
  }

  LocalGroup& group_;
  const int32_t rank_;
  Backend& backend_;
};

LocalGroup::LocalGroup(int32_t size, int64_t longest_row, int spin_us)
    : size_(size),
      piece_(std::max({kPiece, longest_row + size})),  // + size: padding adds less than one column per rank
      spin_us_(spin_us),
      slots_(floatBytes((size + 1) * piece_)),
      channels_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

LocalGroup::~LocalGroup() = default;

std::unique_ptr<Communicator> LocalGroup::communicator(int32_t rank, Backend& backend) {
  assert(rank >= 0 && rank < size_);
  return std::make_unique<End>(*this, rank, backend);
}

void LocalGroup::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_.store(true);
  }
  changed_.notify_all();
}

void LocalGroup::reset() {
  const std::lock_guard lock(mutex_);
  aborted_.store(false);
  arrived_ = 0;
  for (Channel& channel : channels_) channel.full = false;
}

void LocalGroup::meet() {
  uint64_t meeting = 0;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) failAborted();
    meeting = meetings_.load(std::memory_order_relaxed);
    if (++arrived_ == size_) {
      arrived_ = 0;
      meetings_.store(meeting + 1, std::memory_order_release);
    }
  }
  const auto met = [&] { return meetings_.load(std::memory_order_acquire) != meeting; };
  if (met()) {  // this rank arrived last
    changed_.notify_all();
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us_);
  while (spin_us_ > 0 && std::chrono::steady_clock::now() < deadline) {
    for (int i = 0; i < 64; ++i) {
      if (met()) return;
      pauseCpu();
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return met() || aborted_.load(); });
  if (!met()) failAborted();
}

void LocalGroup::awaitChannel(const Channel& channel, bool full) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return channel.full == full || aborted_.load(); });
  if (aborted_.load()) failAborted();
}

void LocalGroup::setChannel(Channel& channel, bool full) {
  {
    const std::lock_guard lock(mutex_);
    channel.full = full;
  }
  changed_.notify_all();
}

void LocalGroup::sumShare(int32_t rank, int64_t count) {
  const int64_t begin = count * rank / size_;
  const int64_t end = count * (rank + 1) / size_;
  float* sum = result();
  std::copy(slot(0) + begin, slot(0) + end, sum + begin);
  for (int32_t other = 1; other < size_; ++other) {
    const float* add = slot(other);
    for (int64_t i = begin; i < end; ++i) sum[i] += add[i];
  }
}

}  // namespace chorus
