#include "runtime/fair_queue.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

namespace chorus {

struct QueueEntry::Client {
  std::optional<uint64_t> id;
  int32_t weight = 1;
  int32_t running = 0;
  int64_t counter = 0;         // with kWeighted: see FairQueue::kCounterUnit
  size_t entries = 0;          // waiting and running
  uint64_t since = 0;          // clock_ when it was last served or began to wait
  QueueEntry* head = nullptr;  // first waiting entry
  QueueEntry* tail = nullptr;
  Client* previous_waiting = nullptr;
  Client* next_waiting = nullptr;
};

namespace {

int64_t shareOf(double tokens, int32_t weight) {
  return std::llround(tokens * static_cast<double>(FairQueue::kCounterUnit)) / weight;
}

}  // namespace

FairQueue::FairQueue(Fairness fairness) : fairness_(fairness) {}
FairQueue::~FairQueue() = default;

std::optional<uint64_t> FairQueue::clientOf(const QueueEntry& entry) { return entry.client_->id; }

int32_t FairQueue::runningOf(const QueueEntry& entry) { return entry.client_->running; }
int32_t FairQueue::weightOf(const QueueEntry& entry) { return entry.client_->weight; }
int64_t FairQueue::counterOf(const QueueEntry& entry) { return entry.client_->counter; }

template <typename Visit>
void FairQueue::forEachClient(Visit visit) const {
  for (const auto& [_, client] : clients_) visit(*client);
  if (anonymous_ != nullptr) visit(*anonymous_);
}

void FairQueue::add(QueueEntry& entry, std::optional<uint64_t> client_id, int32_t weight) {
  assert(entry.client_ == nullptr && weight >= 1 && weight <= kMaxWeight);
  turns_.reserve(numClients() + 1);
  std::unique_ptr<Client>* known = &anonymous_;
  if (client_id) {
    const auto found = clients_.find(*client_id);
    known = found != clients_.end() ? &found->second : nullptr;
  }
  if (known == nullptr || *known == nullptr) {
    auto made = std::make_unique<Client>();
    made->id = client_id;
    if (client_id) known = &clients_.try_emplace(*client_id).first->second;
    *known = std::move(made);
  }
  entry.client_ = known->get();
  entry.client_->weight = weight;
  if (entry.client_->entries == 0) wake(*entry.client_);
  ++entry.client_->entries;
  link(entry);
}

// Called before the client's first entry is added.
void FairQueue::wake(Client& client) noexcept {
  if (fairness_ == Fairness::kWeighted) {
    int64_t lowest = std::numeric_limits<int64_t>::max();
    forEachClient([&](const Client& other) {
      if (other.entries > 0) lowest = std::min(lowest, other.counter);
    });
    if (num_clients_ == 0) lowest = last_counter_;
    client.counter = std::max(client.counter, lowest);
    // A counter that is not above the lowest one would be raised, so it need not be kept.
    Client* least = nullptr;
    for (auto at = clients_.begin(); at != clients_.end();) {
      Client& other = *(at++)->second;
      if (&other == &client || other.entries > 0) continue;
      if (other.counter <= lowest)
        erase(&other);
      else if (least == nullptr || other.counter < least->counter)
        least = &other;
    }
    if (numIdle() > kMaxIdle + 1 && least != nullptr) erase(least);
  }
  ++num_clients_;
}

void FairQueue::charge(const QueueEntry& entry, double tokens) noexcept {
  if (fairness_ == Fairness::kWeighted) entry.client_->counter += shareOf(tokens, entry.client_->weight);
}

void FairQueue::link(QueueEntry& entry) noexcept {
  Client& client = *entry.client_;
  if (client.head == nullptr) {
    if (client.running == 0) client.since = ++clock_;
    client.previous_waiting = nullptr;
    client.next_waiting = first_waiting_;
    if (first_waiting_ != nullptr) first_waiting_->previous_waiting = &client;
    first_waiting_ = &client;
  }
  // Nearly every entry belongs at the end or, if it was paused, at the front.
  QueueEntry* before = client.tail;
  if (client.head != nullptr && entry.position < client.head->position) before = nullptr;
  while (before != nullptr && entry.position < before->position) before = before->previous_;
  entry.previous_ = before;
  entry.next_ = before != nullptr ? before->next_ : client.head;
  (entry.previous_ != nullptr ? entry.previous_->next_ : client.head) = &entry;
  (entry.next_ != nullptr ? entry.next_->previous_ : client.tail) = &entry;
  ++num_waiting_;
}

void FairQueue::unlink(QueueEntry& entry) noexcept {
  Client& client = *entry.client_;
  (entry.previous_ != nullptr ? entry.previous_->next_ : client.head) = entry.next_;
  (entry.next_ != nullptr ? entry.next_->previous_ : client.tail) = entry.previous_;
  entry.previous_ = entry.next_ = nullptr;
  --num_waiting_;
  if (client.head != nullptr) return;
  (client.previous_waiting != nullptr ? client.previous_waiting->next_waiting : first_waiting_) = client.next_waiting;
  if (client.next_waiting != nullptr) client.next_waiting->previous_waiting = client.previous_waiting;
}

void FairQueue::start(QueueEntry& entry) noexcept {
  unlink(entry);
  charge(entry, std::exchange(entry.start_cost, 0));
  ++entry.client_->running;
  entry.client_->since = ++clock_;
}

void FairQueue::pause(QueueEntry& entry) noexcept {
  --entry.client_->running;
  link(entry);
}

void FairQueue::remove(QueueEntry& entry, bool runs) noexcept {
  Client* client = entry.client_;
  if (runs)
    --client->running;
  else
    unlink(entry);
  entry.client_ = nullptr;
  if (--client->entries == 0) drop(client);
}

void FairQueue::drop(Client* client) noexcept {
  if (--num_clients_ == 0) last_counter_ = client->counter;
  if (fairness_ == Fairness::kTurns) erase(client);
}

void FairQueue::erase(Client* client) noexcept {
  if (client->id)
    clients_.erase(*client->id);
  else
    anonymous_.reset();
}

// Order of the heap turns_, whose front is the turn that is later than no other: the next one.
bool FairQueue::Later::operator()(const Turn& a, const Turn& b) const noexcept {
  if (a.entry->position.priority != b.entry->position.priority)
    return a.entry->position.priority < b.entry->position.priority;
  if (fairness == Fairness::kWeighted) return a.counter != b.counter ? a.counter > b.counter : a.since > b.since;
  return a.running != b.running ? a.running > b.running : a.since > b.since;
}

void FairQueue::beginTurns() noexcept {
  turns_.clear();
  served_ = 0;
  for (const Client* client = first_waiting_; client != nullptr; client = client->next_waiting) {
    turns_.push_back({client->head, client->running, client->counter, client->since});
  }
  std::make_heap(turns_.begin(), turns_.end(), Later{fairness_});
}

QueueEntry* FairQueue::nextTurn() noexcept {
  if (turns_.empty()) return nullptr;
  std::pop_heap(turns_.begin(), turns_.end(), Later{fairness_});
  Turn& turn = turns_.back();
  QueueEntry* entry = turn.entry;
  if (entry->next_ == nullptr) {
    turns_.pop_back();
  } else {
    // Marks the client as served last and counts the start, like start().
    turn = {entry->next_, turn.running + 1, turn.counter + shareOf(entry->start_cost, entry->client_->weight),
            clock_ + ++served_};
    std::push_heap(turns_.begin(), turns_.end(), Later{fairness_});
  }
  return entry;
}

void FairQueue::endTurnsOf(const QueueEntry& entry) noexcept {
  const auto of_client = [&](const Turn& turn) { return turn.entry->client_ == entry.client_; };
  if (std::erase_if(turns_, of_client) > 0) std::make_heap(turns_.begin(), turns_.end(), Later{fairness_});
}

const QueueEntry* FairQueue::after(const QueueEntry* entry) const noexcept {
  const Client* client = first_waiting_;
  if (entry != nullptr) {
    if (entry->next_ != nullptr) return entry->next_;
    client = entry->client_->next_waiting;
  }
  return client != nullptr ? client->head : nullptr;
}

}  // namespace chorus
