// What this machine can do at most, measured: the roofs that benchmarks print their shares of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace chorus {

// Bytes per second that all threads of the pool together read from memory: the best of several read kernels
// (1, 2 or 4 streams a thread, with and without software prefetch, ordinary and huge pages), two passes each
// over `bytes`, which should be far beyond every cache. Takes a few seconds. Throws Error(kExhausted) without
// that much memory.
double measureReadBandwidth(ThreadPool& pool, size_t bytes = size_t{2} << 30);

// Floating-point operations per second (two a multiply-add) of all threads in a register-resident loop of products
// on the given set, which must be available: of bfloat16 pairs where the set has their dot products, of 8-bit weights
// and 16-bit inputs where it has integer ones alone, else of float32. The best of twelve passes of so many rounds, some
// 10 ns each: about 0.2 s by default.
double measureMatmulPeak(ThreadPool& pool, Isa isa, int64_t rounds = int64_t{1} << 20);

}  // namespace chorus
