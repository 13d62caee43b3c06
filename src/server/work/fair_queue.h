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

#include "server/work/slow_clients.h"

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
  // A copy's turns would be places of the original.
  FairQueue(FairQueue&&) = default;
  FairQueue& operator=(FairQueue&&) = default;

  // id: greater than every id added before.
  Answer add(uint64_t id, uint64_t client, size_t bytes);
  // Removes a queued task; false if there is none of that id.
  bool remove(uint64_t id);
  // The tasks that take() may return: those of at most max_bytes, of clients that appear fewer than client_limit times
  // in `running`, the clients of the tasks that run now (nullopt: an idle thread), and that are not slow if `left_out`
  // is set.
  struct Choice {
    size_t max_bytes = SIZE_MAX;
    std::span<const std::optional<uint64_t>> running = {};
    int64_t client_limit = INT64_MAX;
    const SlowClients* left_out = nullptr;
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
  using Clients = std::map<uint64_t, Waiting>;
  static bool mayTake(const Choice& choice, const Clients::value_type& client);
  void erase(uint64_t id);
  void undo(uint64_t id, uint64_t client, size_t bytes);

  Limits limits_;
  std::unordered_map<uint64_t, Task> tasks_;
  Clients clients_;
  // The places of all clients with tasks, the next one first. Not their ids, because take() looks at many clients if
  // most of them are left out.
  std::deque<Clients::iterator> turns_;
};

}  // namespace chorus::server
