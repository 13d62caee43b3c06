// Resources of the CPU ops: the threads, the instruction set, and scratch memory that only ever grows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/task_ranges.h"
#include "kernels/variant.h"

namespace chorus {

// Memory that keeps its size between calls, so that a warm step allocates nothing. Contents do not survive
// growth.
class ScratchMemory {
 public:
  template <typename T>
  T* reserve(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > buffer_.size()) buffer_ = AlignedBuffer(std::max(bytes, 2 * buffer_.size()));
    return buffer_.as<T>();
  }

 private:
  AlignedBuffer buffer_;
};

struct CpuWorkspace {
  CpuWorkspace(ThreadPool& thread_pool, Isa instruction_set)
      : pool(thread_pool),
        isa(instruction_set),
        thread(static_cast<size_t>(thread_pool.size())),
        ranges(thread_pool.size()) {}

  // Calls fn(begin, end, thread) for pieces of [0, count) on all threads, or once for the whole range on this thread if
  // the work costs less than a fork-join (about a microsecond). element_cost: rough cost of one index, in elements
  // touched.
  template <typename F>
  void forEachPiece(int64_t count, int64_t element_cost, F&& fn) {
    constexpr int64_t kWorthForking = 32768;
    if (pool.size() == 1 || count * element_cost < kWorthForking) {
      if (count > 0) fn(int64_t{0}, count, 0);
      return;
    }
    const int64_t pieces = std::min<int64_t>(count, 4 * pool.size());
    pool.run(pieces,
             [&](int64_t piece, int thread) { fn(count * piece / pieces, count * (piece + 1) / pieces, thread); });
  }

  // Divides [0, tasks) into ranges of at most max_length tasks, calls fn(begin, end, thread) for each range on any
  // thread, and returns when all are done. A thread mostly gets consecutive ranges (TaskRanges). In two calls with
  // equal `tasks` it mostly gets the same part of [0, tasks), so that data which it wrote in the first is still in its
  // caches in the second. One call at a time; fn must not use forEachRange.
  template <typename F>
  void forEachRange(int64_t tasks, int64_t max_length, F&& fn) {
    if (tasks <= 0) return;
    ranges.deal(tasks, max_length);
    pool.run(ranges.queues(), [&](int64_t, int thread) {
      while (const TaskRanges::Range range = ranges.take(thread)) fn(range.begin, range.end, thread);
    });
  }

  // Returns the op's kernel for the workspace's instruction set and adds the variant to `used`.
  template <typename Kernel>
  Kernel select(Op op, IsaTable<Kernel> table, std::optional<DType> dtype = std::nullopt) {
    const IsaKernel<Kernel>& chosen = selectKernel(table, isa);
    used.add({op, chosen.isa, dtype});
    return chosen.kernel;
  }

  ThreadPool& pool;
  Isa isa;
  VariantRecord used;
  ScratchMemory shared[2];
  std::vector<ScratchMemory> thread;
  TaskRanges ranges;
};

}  // namespace chorus
