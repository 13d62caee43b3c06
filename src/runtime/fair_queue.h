// Queue of sequences that wait for a slot. Order of turns: higher priority first; then the client with the fewest
// running sequences; then the client that has waited longest since it was served; within a client, by arrival.
// Sequences without a client id count as one client.
//
// So slots are shared evenly between the clients that ask for them: a client that runs a thousand sequences comes after
// one that runs none. A single client is served in order of arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace chorus {

// Order within a client: higher priority first, then earlier arrival. A paused sequence keeps its arrival number.
struct QueuePosition {
  float priority = 0;
  uint64_t arrival = 0;
  friend bool operator<(const QueuePosition& a, const QueuePosition& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.arrival < b.arrival;
  }
};

class FairQueue;

// Base class of waiting and running sequences. Its address must not change while it is in a queue.
class QueueEntry {
 public:
  QueueEntry() = default;
  explicit QueueEntry(QueuePosition at) : position(at) {}
  QueueEntry(const QueueEntry&) = delete;
  QueueEntry& operator=(const QueueEntry&) = delete;

  QueuePosition position;

 private:
  friend class FairQueue;
  struct Client;
  Client* client_ = nullptr;  // null: in no queue
  QueueEntry* previous_ = nullptr;
  QueueEntry* next_ = nullptr;
};

// Not thread-safe. Does not own its entries. Only add() allocates; it reserves what the other calls need.
class FairQueue {
 public:
  FairQueue();
  ~FairQueue();
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Adds a waiting entry. If it throws std::bad_alloc, nothing has changed.
  void add(QueueEntry& entry, std::optional<uint64_t> client);
  // start() moves an entry from waiting to running, pause() moves it back. A paused entry keeps its arrival number, so
  // it waits ahead of its client's later arrivals.
  void start(QueueEntry& entry) noexcept;
  void pause(QueueEntry& entry) noexcept;
  // Removes an entry. runs: it is running, not waiting.
  void remove(QueueEntry& entry, bool runs) noexcept;

  size_t numWaiting() const { return num_waiting_; }
  // Clients that have waiting or running entries.
  size_t numClients() const { return clients_.size() + (anonymous_ != nullptr ? 1 : 0); }
  // Number of the entry's client, unique among the clients in the queue.
  static uint64_t clientOf(const QueueEntry& entry);
  // Running sequences of the entry's client.
  static int32_t runningOf(const QueueEntry& entry);

  // Iterates over the waiting entries in order of turns, as if each were started at its turn; nullptr at the end. The
  // queue must not change between beginTurns() and the last nextTurn().
  void beginTurns() noexcept;
  QueueEntry* nextTurn() noexcept;
  // Running sequences of the next entry's client, including its entries that nextTurn() has returned; -1 at the end.
  int32_t runningOfNext() const noexcept { return turns_.empty() ? -1 : turns_.front().running; }

  // Every waiting entry, client by client. `visit` must not change the queue.
  template <typename Visit>
  void forEachWaiting(Visit visit) const {
    for (const QueueEntry* at = nullptr; (at = after(at)) != nullptr;) visit(const_cast<QueueEntry&>(*at));
  }
  // The next waiting entry of the same client, by priority, then arrival; nullptr at the end.
  static QueueEntry* nextOfClient(const QueueEntry& entry) { return entry.next_; }

 private:
  using Client = QueueEntry::Client;
  struct Turn {
    QueueEntry* entry = nullptr;
    int32_t running = 0;
    uint64_t since = 0;
  };
  static bool later(const Turn& a, const Turn& b) noexcept;
  const QueueEntry* after(const QueueEntry* entry) const noexcept;
  void link(QueueEntry& entry) noexcept;
  void unlink(QueueEntry& entry) noexcept;
  void drop(Client* client) noexcept;

  std::unordered_map<uint64_t, std::unique_ptr<Client>> clients_;
  std::unique_ptr<Client> anonymous_;
  Client* first_waiting_ = nullptr;  // list of the clients that have waiting entries
  size_t num_waiting_ = 0;
  uint64_t clock_ = 0;       // counts starts, and clients that begin to wait
  uint64_t numbers_ = 0;     // client numbers assigned so far
  uint64_t served_ = 0;      // added to clock_ for turns since beginTurns()
  std::vector<Turn> turns_;  // a heap; its capacity is reserved for all clients
};

}  // namespace chorus
