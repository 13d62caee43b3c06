// Records how the work of several requests alternates.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/eventually.h"

namespace chorus::server {

// Work in pieces that each take a millisecond. A request that works on when it should have given way to one that has
// not begun is held up, so that a busy machine cannot let it end first.
class TurnOrder {
 public:
  // names: of the requests.
  explicit TurnOrder(std::string names) : names_(std::move(names)) {}

  // No piece begins before.
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Does the next piece of the request's work.
  void piece(char name) {
    constexpr std::ptrdiff_t kTurn = 4;  // pieces, more than fit into a turn
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return open_; });
      order_.push_back(name);
      changed_.notify_all();
      if (std::ranges::count(order_, name) > kTurn) changed_.wait_for(lock, kPatience, [&] { return allBegan(); });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Whether all had begun before one of them ended. Call it when all have ended; then new work may be recorded.
  bool takeTurns() {
    const std::lock_guard lock(mutex_);
    const std::vector<char> order = std::exchange(order_, {});
    size_t last_begin = 0, first_end = order.size();
    for (const char name : names_) {
      last_begin = std::max<size_t>(last_begin, std::ranges::find(order, name) - order.begin());
      first_end = std::min<size_t>(first_end, order.rend() - std::find(order.rbegin(), order.rend(), name));
    }
    open_ = false;
    return last_begin < first_end;
  }

 private:
  bool allBegan() const {
    return std::ranges::all_of(names_, [&](char name) { return std::ranges::count(order_, name) > 0; });
  }

  const std::string names_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::vector<char> order_;
};

}  // namespace chorus::server
