// Measures the limits of this machine. Benchmarks print the share of them that they reach.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace chorus {

// Bytes per second that all threads of the pool together read from memory: the best of several read kernels (1, 2 or 4
// streams per thread, with and without software prefetch, ordinary and huge pages), with two passes each over `bytes`,
// which should be far larger than every cache. Takes a few seconds. Throws Error(kExhausted) if there is not enough
// memory.
double measureReadBandwidth(ThreadPool& pool, size_t bytes);

// Seconds that ThreadPool::run takes for one task per thread that only waits until all threads have begun theirs: the
// least cost of an op that needs all threads, which spin between ops. The median of some thousand runs; takes a few
// milliseconds.
double measureForkJoin(ThreadPool& pool);

// Operations per second of all threads (a multiply-add is two) in a loop of products in registers, with the given
// instruction set, which must be available. The products are of bfloat16 pairs if the set has dot products or tiles of
// them, of 8-bit weights and 16-bit inputs if it has only integer dot products, and otherwise of float32. Returns the
// best of twelve passes of `rounds` rounds of some 10 ns each: about 0.2 s by default.
double measureMatmulPeak(ThreadPool& pool, Isa isa, int64_t rounds = int64_t{1} << 20);

}  // namespace chorus
