#include "comm/local.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <type_traits>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace chorus {
namespace {

// Bytes of a rank's slot: small enough for the processor caches, large enough that the barriers cost little.
constexpr size_t kPiece = size_t{1} << 20;

inline void pauseCpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

size_t bytesOf(const ConstMatrix& x, int64_t elements) { return static_cast<size_t>(elements) * dtypeSize(x.dtype); }

// Calls fn(row, packed offset in bytes, bytes) for each contiguous run of rows [begin, begin + rows) of x, where a
// run begins at column 0 of `row`.
template <typename F>
void forEachRun(const ConstMatrix& x, int64_t begin, int64_t rows, F&& fn) {
  if (x.cols == x.stride) return fn(begin, size_t{0}, bytesOf(x, rows * x.cols));
  const size_t row_bytes = bytesOf(x, x.cols);
  for (int64_t row = 0; row < rows; ++row) fn(begin + row, static_cast<size_t>(row) * row_bytes, row_bytes);
}

[[noreturn]] void failAborted() { fail(ErrorCode::kInternal, "another rank of the group failed"); }
}  // namespace

class LocalGroup::End final : public Communicator {
 public:
  End(LocalGroup& group, int32_t rank, Backend& backend) : group_(group), rank_(rank), backend_(backend) {}
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return group_.size_; }

  void allReduceSum(const Matrix& x, Stream stream) override {
    if (group_.size_ == 1) return;
    forEachPiece(x, [&](std::byte* data, size_t bytes) {
      download(group_.slot(rank_), data, bytes, stream);
      group_.meet();
      switch (x.dtype) {
        case DType::kFloat32:
          group_.sumShare<float>(rank_, static_cast<int64_t>(bytes / sizeof(float)));
          break;
        case DType::kFloat64:
          group_.sumShare<double>(rank_, static_cast<int64_t>(bytes / sizeof(double)));
          break;
        default:
          fail(ErrorCode::kInternal, "a local group cannot add up values of type {}", dtypeName(x.dtype));
      }
      group_.meet();
      upload(data, group_.result(), bytes, stream);
    });
  }

  void allGatherColumns(const ConstMatrix& part, const Matrix& whole, Stream stream) override {
    assert(part.rows == whole.rows && part.dtype == whole.dtype);
    assert(bytesOf(whole, whole.cols) <= group_.piece_ && whole.cols <= part.cols * group_.size_);
    const int64_t first = std::min(rank_ * part.cols, whole.cols);
    const size_t kept = bytesOf(part, std::min(part.cols, whole.cols - first));
    const size_t part_row = bytesOf(part, part.cols), whole_row = bytesOf(whole, whole.cols);
    // A slot holds packed rows of `part`, which padding can make wider than those of `whole`.
    const auto rows_at_once = static_cast<int64_t>(std::max<size_t>(1, group_.piece_ / std::max(part_row, whole_row)));
    for (int64_t begin = 0; begin < part.rows; begin += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, part.rows - begin);
      std::byte* own = group_.slot(rank_);
      forEachRun(part, begin, rows, [&](int64_t row, size_t packed, size_t bytes) {
        download(own + packed, part.at(row, 0), bytes, stream);
      });
      group_.meet();
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        std::copy_n(own + row * part_row, kept, group_.result() + row * whole_row + bytesOf(whole, first));
      }
      group_.meet();
      forEachRun(whole, begin, rows, [&](int64_t row, size_t packed, size_t bytes) {
        upload(whole.at(row, 0), group_.result() + packed, bytes, stream);
      });
    }
  }

  void send(const ConstMatrix& x, int32_t to, Stream stream) override {
    Channel& channel = group_.channel(rank_, to);
    forEachPiece(x, [&](const std::byte* data, size_t bytes) {
      group_.awaitChannel(channel, false);
      if (channel.staging.data() == nullptr) channel.staging = AlignedBuffer(group_.piece_);
      channel.bytes = bytes;
      download(channel.staging.as<std::byte>(), data, bytes, stream);
      group_.setChannel(channel, true);
    });
  }

  void receive(const Matrix& x, int32_t from, Stream stream) override {
    Channel& channel = group_.channel(from, rank_);
    forEachPiece(x, [&](std::byte* data, size_t bytes) {
      group_.awaitChannel(channel, true);
      if (channel.bytes != bytes) {
        fail(ErrorCode::kInternal, "rank {} receives {} bytes where rank {} sends {}", rank_, bytes, from,
             channel.bytes);
      }
      upload(data, channel.staging.as<std::byte>(), bytes, stream);
      group_.setChannel(channel, false);
    });
  }

 private:
  // Calls fn(address, bytes) for consecutive pieces of a matrix without gaps between rows.
  template <typename AnyMatrix, typename F>
  void forEachPiece(const AnyMatrix& x, F&& fn) {
    assert(x.stride == x.cols || x.rows <= 1);
    const size_t all = bytesOf(x, x.rows * x.cols);
    using Byte = std::conditional_t<std::is_same_v<AnyMatrix, Matrix>, std::byte, const std::byte>;
    auto* const first = static_cast<Byte*>(x.data);
    for (size_t begin = 0; begin < all; begin += group_.piece_) fn(first + begin, std::min(group_.piece_, all - begin));
  }
  void download(void* host, const void* device, size_t bytes, Stream stream) {
    backend_.download(host, device, bytes, stream);
    backend_.synchronize(stream);
  }
  void upload(void* device, const void* host, size_t bytes, Stream stream) {
    backend_.upload(device, host, bytes, stream);
    backend_.synchronize(stream);
  }

  LocalGroup& group_;
  const int32_t rank_;
  Backend& backend_;
};

LocalGroup::LocalGroup(int32_t size, int64_t longest_row, int spin_us)
    : size_(size),
      // + size: padding adds less than one column per rank.
      piece_(std::max(kPiece, static_cast<size_t>(longest_row + size) * sizeof(float))),
      spin_us_(spin_us),
      slots_(static_cast<size_t>(size + 1) * piece_),
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

template <typename T>
void LocalGroup::sumShare(int32_t rank, int64_t count) {
  const int64_t begin = count * rank / size_;
  const int64_t end = count * (rank + 1) / size_;
  auto* const sum = reinterpret_cast<T*>(result());
  const auto* const first = reinterpret_cast<const T*>(slot(0));
  std::copy(first + begin, first + end, sum + begin);
  for (int32_t other = 1; other < size_; ++other) {
    const auto* const add = reinterpret_cast<const T*>(slot(other));
    for (int64_t i = begin; i < end; ++i) sum[i] += add[i];
  }
}

}  // namespace chorus
