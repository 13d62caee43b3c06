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

// Median seconds of a ThreadPool::run in which every thread takes one task and waits for the others to begin theirs:
// what an op that needs all threads costs at least. Takes at most about 50 ms.
double measureForkJoin(ThreadPool& pool);

// Operations per second of all threads (a multiply-add is two) in a loop of products in registers, with the given
// instruction set, which must be available. The products are of bfloat16 pairs for kAvx512Bf16 and the sets of AMX (for
// kAmxInt8 too, although its integer tiles take half the time), of 8-bit weights and 16-bit inputs if it has only
// integer dot products, and otherwise of float32. Returns the best of twelve passes of `rounds` rounds of some 10 ns
// each: about 0.2 s by default.
double measureMatmulPeak(ThreadPool& pool, Isa isa, int64_t rounds = int64_t{1} << 20);

}  // namespace chorus
