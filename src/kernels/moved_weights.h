// Weights of a mapped file, moved to huge pages while they are read.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace chorus {

// A mapping of its own of memory that is a shared mapping of a file. Piece after piece is copied to anonymous huge
// pages, which then take the piece's place at its address in one step of the kernel: readers see the same bytes at all
// times, from the page cache at first, which makes weights usable at once, and later without a page walk every 4 KB.
// What cannot be moved (no memory left) stays as it is.
class MovedWeights {
 public:
  // host: page-aligned, stays mapped and unchanged while this lives.
  MovedWeights(const void* host, size_t bytes);
  ~MovedWeights();  // stops moving
  MovedWeights(const MovedWeights&) = delete;
  MovedWeights& operator=(const MovedWeights&) = delete;

  // Null when host is no shared mapping of a file or address space ran out.
  const void* data() const { return data_; }
  // Starts `threads` threads, of low priority when the weights are read meanwhile; each tells moved(bytes), which may
  // be null, of its pieces. Once; later calls do nothing.
  void start(int threads, bool low_priority, std::function<void(size_t)> moved);
  // Until all pieces are moved or given up.
  void wait();

 private:
  void movePieces(bool low_priority);
  bool move(size_t begin, size_t size);

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
