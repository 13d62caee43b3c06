// Queue of sequences that wait for a slot. Order of turns: higher priority first; then by Fairness; then the client
// that has waited longest since it was served; within a client, by arrival. Sequences without a client id count as one
// client.
//
// - Fairness::kTurns: the client with the fewest running sequences is first. So slots are shared evenly between the
//   clients that ask for them: a client that runs a thousand sequences comes after one that runs none.
// - Fairness::kWeighted: the client with the lowest counter is first. A client's counter grows by the tokens that it is
//   served, divided by its weight: by the prompt when a sequence starts, and by charge(). A client that begins to use
//   the queue gets at least the lowest counter of those that use it already, so it saves nothing up while it is idle.
//   If none uses it, it gets at least the counter of the client that used it last. These are the virtual token counters
//   of "Fairness in Serving Large Language Models" (Sheng et al., 2024).
//
// A single client is served in order of arrival.
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

enum class Fairness { kTurns, kWeighted };

// Base class of waiting and running sequences. Its address must not change while it is in a queue.
class QueueEntry {
 public:
  QueueEntry() = default;
  explicit QueueEntry(QueuePosition at) : position(at) {}
  QueueEntry(const QueueEntry&) = delete;
  QueueEntry& operator=(const QueueEntry&) = delete;

  QueuePosition position;
  int32_t start_cost = 0;  // tokens that its first start adds to its client's counter

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
  // Counters count such parts of a token. It is a multiple of the weights up to 16, whose quotients are therefore
  // exact.
  static constexpr int64_t kCounterUnit = 720'720;
  static constexpr int32_t kMaxWeight = 1000;
  // Limit on the clients without entries that are remembered with kWeighted, because their counter is above the lowest
  // one.
  static constexpr size_t kMaxIdle = 1024;

  explicit FairQueue(Fairness fairness = Fairness::kTurns);
  ~FairQueue();
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Adds a waiting entry. weight: of its client from now on, 1 to kMaxWeight. If it throws std::bad_alloc, nothing has
  // changed.
  void add(QueueEntry& entry, std::optional<uint64_t> client, int32_t weight = 1);
  // start() moves an entry from waiting to running, pause() moves it back. A paused entry keeps its arrival number, so
  // it waits ahead of its client's later arrivals.
  void start(QueueEntry& entry) noexcept;
  void pause(QueueEntry& entry) noexcept;
  // Removes an entry. runs: it is running, not waiting.
  void remove(QueueEntry& entry, bool runs) noexcept;

  // Adds tokens that the entry was served, in whole or in part, to its client's counter.
  void charge(const QueueEntry& entry, double tokens) noexcept;

  size_t numWaiting() const { return num_waiting_; }
  // Clients that have waiting or running entries.
  size_t numClients() const { return num_clients_; }
  // Clients without entries whose counter is kept.
  size_t numIdle() const { return clients_.size() + (anonymous_ != nullptr ? 1 : 0) - num_clients_; }
  // Whether a queue has the entry.
  static bool contains(const QueueEntry& entry) { return entry.client_ != nullptr; }
  // The id with which the entry was added.
  static std::optional<uint64_t> clientOf(const QueueEntry& entry);
  // Running sequences of the entry's client.
  static int32_t runningOf(const QueueEntry& entry);
  static int32_t weightOf(const QueueEntry& entry);
  static int64_t counterOf(const QueueEntry& entry);

  // Iterates over the waiting entries in order of turns, as if each were started at its turn; nullptr at the end. The
  // queue must not change between beginTurns() and the last nextTurn().
  void beginTurns() noexcept;
  QueueEntry* nextTurn() noexcept;
  // Leaves out the entries of this entry's client that nextTurn() has not returned yet.
  void endTurnsOf(const QueueEntry& entry) noexcept;
  // Running sequences of the next entry's client, including its entries that nextTurn() has returned; -1 at the end.
  int32_t runningOfNext() const noexcept { return turns_.empty() ? -1 : turns_.front().running; }
  // Weight of the next entry's client; 1 at the end.
  int32_t weightOfNext() const noexcept { return turns_.empty() ? 1 : weightOf(*turns_.front().entry); }

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
    int64_t counter = 0;  // 0 with kTurns
    uint64_t since = 0;
  };
  struct Later {
    Fairness fairness;
    bool operator()(const Turn& a, const Turn& b) const noexcept;
  };
  const QueueEntry* after(const QueueEntry* entry) const noexcept;
  void link(QueueEntry& entry) noexcept;
  void unlink(QueueEntry& entry) noexcept;
  void drop(Client* client) noexcept;
  void erase(Client* client) noexcept;
  void wake(Client& client) noexcept;
  template <typename Visit>
  void forEachClient(Visit visit) const;

  const Fairness fairness_;
  std::unordered_map<uint64_t, std::unique_ptr<Client>> clients_;
  std::unique_ptr<Client> anonymous_;
  size_t num_clients_ = 0;
  int64_t last_counter_ = 0;         // of the client that used the queue last, when none does
  Client* first_waiting_ = nullptr;  // list of the clients that have waiting entries
  size_t num_waiting_ = 0;
  uint64_t clock_ = 0;       // counts starts, and clients that begin to wait
  uint64_t served_ = 0;      // added to clock_ for turns since beginTurns()
  std::vector<Turn> turns_;  // a heap; its capacity is reserved for all clients
};

}  // namespace chorus
