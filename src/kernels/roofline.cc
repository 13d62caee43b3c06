#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/roofline.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/math-inl.h"
#include "kernels/roofline.h"
#include "kernels/roofline_kernels.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

// Reads `bytes` (a multiple of 64 * kStreams) as kStreams sequential streams. The data is combined as integers, so that
// all bytes take the same time: some processors take a hundred cycles for a floating-point operation on a subnormal
// number.
template <int kStreams, bool kPrefetch>
float readStreams(const std::byte* data, size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kAhead = 2048;
  const hn::RebindToUnsigned<Floats> d;
  using Words = hn::Vec<decltype(d)>;
  const size_t length = bytes / kStreams;
  Words sums[kStreams];
  for (Words& sum : sums) sum = hn::Zero(d);
  for (size_t at = 0; at < length; at += kLine) {
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* line = data + s * length + at;
      if (kPrefetch) __builtin_prefetch(line + kAhead);
      for (size_t i = 0; i < kLine; i += kFloatLanes * sizeof(float)) {
        sums[s] = hn::Xor(sums[s], hn::LoadU(d, reinterpret_cast<const uint32_t*>(line + i)));
      }
    }
  }
  Words total = sums[0];
  for (int s = 1; s < kStreams; ++s) total = hn::Xor(total, sums[s]);
  return static_cast<float>(hn::GetLane(hn::SumOfLanes(d, total)));
}

// `rounds` rounds of kChains independent multiply-adds, enough to hide the latency of two units. Each chain halves its
// distance from `start` in a round, so its values are normal numbers in [start, start + kChains) however long it runs.
// A chain that decays to zero or grows without bound would leave the normal numbers, and a subnormal operand makes a
// multiply-add a hundred times slower on Intel's processors, though not on AMD's.
constexpr int kChains = 12;
float multiplyAddChains(int64_t rounds, float start) {
  const Floats d;
  FloatVec sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(d, start + static_cast<float>(i));
  const FloatVec a = hn::Set(d, 0.5f), b = hn::Set(d, 0.5f * start);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], a, b);
  }
  FloatVec total = sums[0];
  for (int i = 1; i < kChains; ++i) total = hn::Add(total, sums[i]);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

ReadKernels readKernels() {
  return {{&readStreams<1, false>, &readStreams<1, true>, &readStreams<2, false>, &readStreams<2, true>,
           &readStreams<4, false>, &readStreams<4, true>}};
}
ProductLoop productLoop() { return {&multiplyAddChains, 2.0 * kChains * static_cast<double>(kFloatLanes)}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {

IsaTable<ReadKernels> readTable() { CHORUS_ISA_TABLE(ReadKernels, readKernels); }
IsaTable<ProductLoop> productTable() {
#if defined(__x86_64__)
  CHORUS_ISA_TABLE_AND(ProductLoop, productLoop, {Isa::kAvx512Vnni, vnniProductLoop()},
                       {Isa::kAvx512Bf16, dotProductLoop()}, {Isa::kAmxInt8, tileProductLoop()});
#else
  CHORUS_ISA_TABLE(ProductLoop, productLoop);
#endif
}

// Every measurement writes its result here, because the compiler may remove a loop whose result is not used.
std::atomic<float> sink{0};

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Anonymous memory with every page present, ordinary or (where the kernel grants them) huge.
class Pages {
 public:
  Pages(size_t bytes, bool huge, ThreadPool& pool) : bytes_(bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      fail(ErrorCode::kExhausted, "cannot allocate {} bytes to measure the memory bandwidth", bytes);
    data_ = static_cast<std::byte*>(data);
    ::madvise(data, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    constexpr int64_t kPage = 4096;
    pool.run(pool.size(), [&](int64_t part, int) {
      const auto pages = static_cast<int64_t>(bytes) / kPage;
      for (int64_t i = pages * part / pool.size(); i < pages * (part + 1) / pool.size(); ++i) {
        data_[i * kPage] = std::byte{1};
      }
    });
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  const std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

double readOnce(ThreadPool& pool, float (*read)(const std::byte*, size_t), const std::byte* data, size_t bytes) {
  const size_t part_bytes = bytes / static_cast<size_t>(pool.size()) / 4096 * 4096;
  const auto start = std::chrono::steady_clock::now();
  pool.run(pool.size(), [&](int64_t part, int) {
    sink.store(read(data + static_cast<size_t>(part) * part_bytes, part_bytes), std::memory_order_relaxed);
  });
  return static_cast<double>(part_bytes) * pool.size() / secondsSince(start);
}
}  // namespace

const ReadKernels& readKernelsOf(Isa isa) { return selectKernel(readTable(), isa).kernel; }
const ProductLoop& productLoopOf(Isa isa) { return selectKernel(productTable(), isa).kernel; }

double measureReadBandwidth(ThreadPool& pool, size_t bytes) {
  const ReadKernels& kernels = readKernelsOf(availableIsas().back());
  double best = 0;
  for (const bool huge : {false, true}) {
    const Pages pages(bytes, huge, pool);
    for (int pass = 0; pass < 2; ++pass) {
      for (const auto read : kernels.read) best = std::max(best, readOnce(pool, read, pages.data(), bytes));
    }
  }
  return best;
}

double measureForkJoin(ThreadPool& pool) {
  constexpr int kRuns = 4000, kSpins = 10000;
  constexpr double kMostSeconds = 0.05;  // with more threads than cores, a run takes milliseconds
  std::vector<double> seconds;
  seconds.reserve(kRuns);
  const auto begin = std::chrono::steady_clock::now();
  do {
    const auto start = std::chrono::steady_clock::now();
    std::atomic<int> begun{0};
    pool.run(pool.size(), [&](int64_t, int) {
      begun.fetch_add(1, std::memory_order_relaxed);
      for (int spins = 0; begun.load(std::memory_order_relaxed) < pool.size();) {
        if (spins < kSpins) {
          ++spins;
        } else {
          std::this_thread::yield();
        }
      }
    });
    seconds.push_back(secondsSince(start));
  } while (seconds.size() < kRuns && secondsSince(begin) < kMostSeconds);
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

double measureMatmulPeak(ThreadPool& pool, Isa isa, int64_t rounds) {
  constexpr int kPasses = 12;
  const ProductLoop& loop = productLoopOf(isa);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(pool.size(), [&](int64_t part, int) {
      sink.store(loop.run(rounds, static_cast<float>(1 + part)), std::memory_order_relaxed);
    });
    best = std::max(best, loop.flops_per_round * static_cast<double>(rounds) * pool.size() / secondsSince(start));
  }
  return best;
}

}  // namespace chorus
#endif
