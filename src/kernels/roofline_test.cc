#include "kernels/roofline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/roofline_kernels.h"

namespace chorus {
namespace {

// Flags of what `call` did that makes floating point slow on some processors: a subnormal operand, an overflow, an
// underflow or an invalid operation. Always 0 on machines other than x86-64.
template <typename F>
unsigned slowEventsOf(F&& call) {
#if defined(__x86_64__)
  constexpr unsigned kInvalid = 1, kDenormal = 2, kOverflow = 8, kUnderflow = 16, kAll = 63;
  _mm_setcsr(_mm_getcsr() & ~kAll);
  call();
  return _mm_getcsr() & (kInvalid | kDenormal | kOverflow | kUnderflow);
#else
  call();
  return 0;
#endif
}

TEST(RooflineTest, OnIntelTheFloat32RoofIsNoNonsenseBecauseItsNumbersStayNormal) {
  constexpr int64_t kRounds = int64_t{1} << 20;  // the default of measureMatmulPeak
  for (const Isa isa : availableIsas()) {
    for (const float start : {1.0f, 2.0f, 64.0f, 1024.0f}) {  // `start` of the first thread and of others
      float result = 0;
      EXPECT_EQ(slowEventsOf([&] { result = productLoopOf(isa).run(kRounds, start); }), 0u) << isaName(isa);
      EXPECT_TRUE(std::isnormal(result)) << isaName(isa) << " from " << start << ": " << result;
    }
  }
}

TEST(RooflineTest, AForkJoinTakesTime) {
  ThreadPool pool(2);
  EXPECT_GT(measureForkJoin(pool), 0.0);
}

TEST(RooflineTest, ReadingIsAsFastForBytesThatAreSubnormalFloats) {
  std::vector<std::byte> bytes(size_t{1} << 16);
  for (size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = std::byte{1};
  for (const Isa isa : availableIsas()) {
    for (const auto read : readKernelsOf(isa).read) {
      EXPECT_EQ(slowEventsOf([&] { read(bytes.data(), bytes.size()); }), 0u) << isaName(isa);
    }
  }
}

}  // namespace
}  // namespace chorus
