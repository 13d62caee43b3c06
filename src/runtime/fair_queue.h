// Who waits for a slot, in whose turn it is: a higher priority first; then the client with the fewest running
// sequences, and of those with equally many the one that has waited longest since it was served; within a client by
// arrival. Sequences without a client are those of one.
//
// So slots are shared evenly, as far as clients ask for them: a client with a thousand sequences is behind one that
// has none. One client alone is served in the order of arrival.
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

// The base of what waits and runs. Stays where it is while it is in a queue.
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

// Not thread-safe. Entries are not owned. Only add() allocates: what it made room for cannot fail later.
class FairQueue {
 public:
  FairQueue();
  ~FairQueue();
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // The entry begins to wait. When memory is missing nothing has changed.
  void add(QueueEntry& entry, std::optional<uint64_t> client);
  // From waiting to running and back. A paused entry stands where its arrival says: ahead of its client's later ones.
  void start(QueueEntry& entry) noexcept;
  void pause(QueueEntry& entry) noexcept;
  // Of one that waits, or runs: it leaves.
  void remove(QueueEntry& entry, bool runs) noexcept;

  size_t numWaiting() const { return num_waiting_; }
  // Clients of which somebody waits or runs.
  size_t numClients() const { return clients_.size() + (anonymous_ != nullptr ? 1 : 0); }
  // A number that tells the clients in the queue apart.
  static uint64_t clientOf(const QueueEntry& entry);
  // Sequences that its client runs.
  static int32_t runningOf(const QueueEntry& entry);

  // The waiting in the order of their turns, as if each were started in its turn; nullptr at the end. The queue does
  // not change between beginTurns() and the last nextTurn().
  void beginTurns() noexcept;
  QueueEntry* nextTurn() noexcept;
  // How many sequences the client of the next one runs, those whose turn has come included; -1 at the end.
  int32_t runningOfNext() const noexcept { return turns_.empty() ? -1 : turns_.front().running; }

  // Every waiting entry, client by client. `visit` must not change the queue.
  template <typename Visit>
  void forEachWaiting(Visit visit) const {
    for (const QueueEntry* at = nullptr; (at = after(at)) != nullptr;) visit(const_cast<QueueEntry&>(*at));
  }
  // The one behind it of the same client and, unless they have other priorities, the next arrival.
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
  Client* first_waiting_ = nullptr;  // of the clients of whom somebody waits
  size_t num_waiting_ = 0;
  uint64_t clock_ = 0;       // counts starts, and when clients begin to wait
  uint64_t numbers_ = 0;     // of clients, given so far
  uint64_t served_ = 0;      // turns since beginTurns()
  std::vector<Turn> turns_;  // a heap; as large as there are clients
};

}  // namespace chorus
