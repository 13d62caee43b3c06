// Queue that schedules the tasks of many clients fairly. Pure: no threads, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

namespace chorus::server {

// Round robin over clients. Within a client the task of the fewest bytes is first, but every kOldestTurn-th turn of a
// client takes its oldest task, so that no task starves.
class FairQueue {
 public:
  static constexpr int kOldestTurn = 4;

  struct Limits {
    size_t tasks = SIZE_MAX;
    size_t client_tasks = SIZE_MAX;
    size_t client_bytes = SIZE_MAX;  // sum over a client's queued tasks; a client's only task may exceed it
  };
  enum class Answer { kAdded, kClientFull, kFull };

  FairQueue() = default;
  explicit FairQueue(const Limits& limits) : limits_(limits) {}

  // id: greater than every id added before.
  Answer add(uint64_t id, uint64_t client, size_t bytes);
  // Removes a queued task; false if there is none of that id.
  bool remove(uint64_t id);
  // The tasks that take() may return: those of at most max_bytes, of clients that appear fewer than client_limit times
  // in `running`, the clients of the tasks that run now (nullopt: an idle thread), and not in `left_out`.
  struct Choice {
    size_t max_bytes = SIZE_MAX;
    std::span<const std::optional<uint64_t>> running = {};
    int64_t client_limit = INT64_MAX;
    std::span<const std::optional<uint64_t>> left_out = {};  // nullopt: nobody
  };
  struct Taken {
    uint64_t id = 0;
    uint64_t client = 0;
  };
  // Removes and returns the next task that `choice` allows; nullopt if there is none.
  std::optional<Taken> take(const Choice& choice);
  size_t size() const { return tasks_.size(); }

 private:
  struct Task {
    uint64_t client;
    size_t bytes;
  };
  struct Waiting {
    std::set<std::pair<size_t, uint64_t>> by_bytes;  // (bytes, id)
    std::set<uint64_t> by_age;                       // ids
    size_t bytes = 0;
    int turns = 0;
  };
  bool mayTake(const Choice& choice, uint64_t client) const;
  void erase(uint64_t id);
  void undo(uint64_t id, uint64_t client, size_t bytes);

  Limits limits_;
  std::unordered_map<uint64_t, Task> tasks_;
  std::map<uint64_t, Waiting> clients_;
  std::deque<uint64_t> turns_;  // clients with tasks, the next one first
};

}  // namespace chorus::server
