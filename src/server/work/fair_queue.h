// The order in which workers take the tasks of many clients. Pure: no threads, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace chorus::server {

// Clients take turns. Within a client the task of the fewest bytes is first; each kOldestTurn-th turn of a client goes
// to its oldest task instead, so that none waits for ever.
class FairQueue {
 public:
  static constexpr int kOldestTurn = 4;

  struct Limits {
    size_t tasks = SIZE_MAX;
    size_t client_tasks = SIZE_MAX;
    size_t client_bytes = SIZE_MAX;  // a client's first task may have more
  };
  enum class Answer { kAdded, kClientFull, kFull };

  FairQueue() = default;
  explicit FairQueue(const Limits& limits) : limits_(limits) {}

  // id: new, and greater than those before.
  Answer add(uint64_t id, uint64_t client, size_t bytes);
  // False when the task is not queued.
  bool remove(uint64_t id);
  // The next task, which leaves the queue. max_bytes: only a task of at most so many.
  std::optional<uint64_t> take(size_t max_bytes = SIZE_MAX);
  // Whether take(max_bytes) has one.
  bool has(size_t max_bytes = SIZE_MAX) const;
  size_t size() const { return tasks_.size(); }

 private:
  struct Task {
    uint64_t client;
    size_t bytes;
  };
  struct Waiting {
    std::set<std::pair<size_t, uint64_t>> by_bytes;  // bytes, id
    std::set<uint64_t> by_age;                       // ids
    size_t bytes = 0;
    int turns = 0;
  };
  void erase(uint64_t id);
  void undo(uint64_t id, uint64_t client, size_t bytes);

  Limits limits_;
  std::unordered_map<uint64_t, Task> tasks_;
  std::map<uint64_t, Waiting> clients_;
  std::deque<uint64_t> turns_;  // clients with tasks, the next one first
  std::set<std::pair<size_t, uint64_t>> sizes_;
};

}  // namespace chorus::server
