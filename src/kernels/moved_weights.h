// Moves weights from a mapped file to huge pages while they are being read.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/numa.h"

namespace chorus {

// A second mapping of memory that is a shared mapping of a file. Its pieces are copied one by one to anonymous huge
// pages, which then replace the piece at its address in one step of the kernel. Readers see the same bytes at all
// times: first from the page cache, so that weights are usable at once, and later without a page walk every 4 KB.
// Pieces that cannot be moved because memory ran out stay as they are.
class MovedWeights {
 public:
  // host: page-aligned; must stay mapped and unchanged while this object lives. nodes: the NUMA nodes on which the
  // moved pages lie in turn; empty: where the kernel puts them.
  MovedWeights(const void* host, size_t bytes, std::vector<NumaNode> nodes = {});
  ~MovedWeights();  // stops moving
  MovedWeights(const MovedWeights&) = delete;
  MovedWeights& operator=(const MovedWeights&) = delete;

  // Null if `host` is not a page-aligned shared mapping of a file, or if address space ran out.
  const void* data() const { return data_; }
  // Starts `threads` threads that move the pieces. Each calls moved(bytes), which may be null, after every piece it
  // moved. low_priority: for weights that are read at the same time. Only the first call has an effect.
  void start(int threads, bool low_priority, std::function<void(size_t)> moved);
  // Waits until all pieces are moved or the move is given up.
  void wait();

 private:
  void movePieces(bool low_priority);
  bool move(size_t begin, size_t size);

  std::vector<NumaNode> nodes_;
  void* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;  // whole pages
  std::function<void(size_t)> moved_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace chorus
