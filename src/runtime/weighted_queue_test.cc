// FairQueue with Fairness::kWeighted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <vector>

#include "runtime/fair_queue.h"

namespace chorus {
namespace {

constexpr int64_t kUnit = FairQueue::kCounterUnit;

class WeightedQueueTest : public ::testing::Test {
 protected:
  QueueEntry& add(uint64_t client, int32_t cost, int32_t weight = 1, float priority = 0.5f) {
    QueueEntry& entry = entries.emplace_back(QueuePosition{priority, arrival++});
    entry.start_cost = cost;
    queue.add(entry, client, weight);
    return entry;
  }
  QueueEntry* first() {
    queue.beginTurns();
    return queue.nextTurn();
  }
  // Starts the next entry, serves it `generated` tokens and removes it.
  uint64_t serve(int64_t generated) {
    QueueEntry* entry = first();
    const uint64_t arrived = entry->position.arrival;
    queue.start(*entry);
    queue.charge(*entry, generated);
    queue.remove(*entry, true);
    return arrived;
  }

  FairQueue queue{Fairness::kWeighted};
  std::deque<QueueEntry> entries;
  uint64_t arrival = 0;
};

TEST_F(WeightedQueueTest, TheLeastServedGoesFirst) {
  QueueEntry& a = add(1, 100);
  QueueEntry& a2 = add(1, 100);
  QueueEntry& b = add(2, 30);
  QueueEntry& b2 = add(2, 30);
  QueueEntry& b3 = add(2, 30);
  EXPECT_EQ(first(), &a) << "nobody was served: the first that came";
  queue.start(a);
  EXPECT_EQ(FairQueue::counterOf(a), 100 * kUnit);
  queue.beginTurns();
  for (QueueEntry* expected : {&b, &b2, &b3, &a2}) EXPECT_EQ(queue.nextTurn(), expected);
  EXPECT_EQ(queue.nextTurn(), nullptr);
  queue.start(b);
  queue.charge(b, 71);
  EXPECT_EQ(FairQueue::counterOf(b), 101 * kUnit);
  EXPECT_EQ(first(), &a2);
  queue.charge(a, 2);
  EXPECT_EQ(first(), &b2);
  // A paused entry has been paid for.
  queue.pause(b);
  EXPECT_EQ(first(), &b);
  queue.start(b);
  EXPECT_EQ(FairQueue::counterOf(b), 101 * kUnit);
}

TEST_F(WeightedQueueTest, WeightsDivideTheCounters) {
  QueueEntry& heavy = add(1, 60, 3);
  QueueEntry& light = add(2, 60, 1);
  queue.start(heavy);
  queue.start(light);
  EXPECT_EQ(FairQueue::counterOf(heavy), 20 * kUnit);
  EXPECT_EQ(FairQueue::counterOf(light), 60 * kUnit);
  queue.charge(heavy, 1);
  EXPECT_EQ(FairQueue::counterOf(heavy), 20 * kUnit + kUnit / 3);
  // A new weight holds for what is served from now on.
  add(1, 10, 1000);
  EXPECT_EQ(FairQueue::weightOf(heavy), 1000);
  queue.charge(heavy, 1);
  EXPECT_EQ(FairQueue::counterOf(heavy), 20 * kUnit + kUnit / 3 + 720);
}

TEST_F(WeightedQueueTest, TokensAreServedByWeight) {
  // Three clients that always wait, with different weights and sizes of requests, one slot.
  const std::map<uint64_t, std::pair<int32_t, int32_t>> clients = {{1, {1, 50}}, {2, {2, 10}}, {3, {5, 90}}};
  std::map<uint64_t, int64_t> served;
  std::map<uint64_t, uint64_t> owner;
  const auto send = [&](uint64_t client) {
    const auto [weight, cost] = clients.at(client);
    owner[add(client, cost, weight).position.arrival] = client;
  };
  for (const auto& [client, _] : clients) {
    for (int i = 0; i < 2; ++i) send(client);
  }
  for (int i = 0; i < 4000; ++i) {
    const uint64_t client = owner.at(serve(20));
    served[client] += clients.at(client).second + 20;
    send(client);
    for (const auto& [a, of_a] : served) {
      for (const auto& [b, of_b] : served) {
        // The counters of clients that wait are never further apart than one request.
        const double share_a = static_cast<double>(of_a) / clients.at(a).first;
        const double share_b = static_cast<double>(of_b) / clients.at(b).first;
        ASSERT_LE(std::abs(share_a - share_b), 110.0) << i;
      }
    }
  }
  EXPECT_NEAR(static_cast<double>(served[3]) / static_cast<double>(served[1]), 5.0, 0.05);
  EXPECT_NEAR(static_cast<double>(served[2]) / static_cast<double>(served[1]), 2.0, 0.05);
}

TEST_F(WeightedQueueTest, WhoeverReturnsHasSavedNothingUp) {
  QueueEntry& busy = add(1, 1000);
  queue.start(busy);
  QueueEntry& other = add(2, 500);
  EXPECT_EQ(FairQueue::counterOf(other), 1000 * kUnit) << "raised to the lowest counter in use";
  queue.start(other);
  QueueEntry& third = add(3, 5);
  EXPECT_EQ(FairQueue::counterOf(third), 1000 * kUnit);
  EXPECT_EQ(FairQueue::counterOf(other), 1500 * kUnit);
  // Whoever was served more keeps its counter while it is idle.
  queue.remove(other, true);
  EXPECT_EQ(queue.numClients(), 2u);
  EXPECT_EQ(queue.numIdle(), 1u);
  queue.charge(busy, 200);
  QueueEntry& again = add(2, 500);
  EXPECT_EQ(FairQueue::counterOf(again), 1500 * kUnit);
  EXPECT_EQ(queue.numIdle(), 0u);
  // Nobody is left: the next one begins where the last one ended.
  queue.remove(third, false);
  queue.remove(busy, true);
  queue.remove(again, false);
  EXPECT_EQ(queue.numClients(), 0u);
  QueueEntry& fresh = add(4, 1);
  EXPECT_EQ(FairQueue::counterOf(fresh), 1500 * kUnit);
  EXPECT_EQ(queue.numIdle(), 0u) << "counters that would be raised are not kept";
}

TEST_F(WeightedQueueTest, PrioritiesComeBeforeCounters) {
  QueueEntry& first_one = add(1, 1000);
  queue.start(first_one);
  add(2, 10);
  QueueEntry& urgent = add(1, 10, 1, 0.9f);
  EXPECT_EQ(first(), &urgent);
}

// One client sends a thousand requests at once and goes on; another sends one after the other. The second never waits
// for more than one request of the first.
TEST_F(WeightedQueueTest, NobodyStarves) {
  for (int i = 0; i < 1000; ++i) add(1, 100);
  for (int i = 0; i < 200; ++i) {
    const uint64_t mine = add(2, 10).position.arrival;
    int before = 0;
    while (serve(10) != mine) ++before;
    ASSERT_LE(before, 1) << i;
    add(1, 100);
  }
}

TEST_F(WeightedQueueTest, FewIdleClientsAreRemembered) {
  QueueEntry& busy = add(0, 1);
  queue.start(busy);
  for (uint64_t client = 1; client <= 3 * FairQueue::kMaxIdle; ++client) {
    QueueEntry& entry = add(client, static_cast<int32_t>(client % 1000 + 1));
    queue.start(entry);
    queue.remove(entry, true);
    ASSERT_LE(queue.numIdle(), FairQueue::kMaxIdle + 1);
  }
  queue.charge(busy, 2000);
  add(1, 1);
  EXPECT_EQ(queue.numIdle(), 0u) << "none is above the lowest counter any more";
}

// Reference implementation: keeps every counter for ever, and searches all clients for every turn.
class PlainQueue {
 public:
  struct Client {
    int64_t counter = 0;
    int64_t weight = 1;
    uint64_t since = 0;
    int running = 0;
    std::list<QueueEntry*> waiting;
    bool active() const { return running > 0 || !waiting.empty(); }
  };
  std::map<int, Client> clients;
  int64_t last = 0;

  // Called before the client's entry is added.
  void wake(Client& client) {
    if (client.active()) return;
    int64_t lowest = -1;
    for (const auto& [_, other] : clients) {
      if (other.active() && (lowest < 0 || other.counter < lowest)) lowest = other.counter;
    }
    client.counter = std::max(client.counter, lowest < 0 ? last : lowest);
  }
  // Called after an entry of the client was removed.
  void left(const Client& client) {
    const bool any = std::any_of(clients.begin(), clients.end(), [](const auto& one) { return one.second.active(); });
    if (!any) last = client.counter;
  }
  std::vector<QueueEntry*> turns() const {
    auto rest = clients;
    uint64_t later = uint64_t{1} << 40;
    std::vector<QueueEntry*> order;
    for (;;) {
      Client* next = nullptr;
      for (auto& [_, client] : rest) {
        if (client.waiting.empty()) continue;
        if (next == nullptr || before(client, *next)) next = &client;
      }
      if (next == nullptr) return order;
      order.push_back(next->waiting.front());
      next->counter += next->waiting.front()->start_cost * kUnit / next->weight;
      next->waiting.pop_front();
      next->since = ++later;
    }
  }

 private:
  static bool before(const Client& a, const Client& b) {
    const float of_a = a.waiting.front()->position.priority, of_b = b.waiting.front()->position.priority;
    if (of_a != of_b) return of_a > of_b;
    return a.counter != b.counter ? a.counter < b.counter : a.since < b.since;
  }
};

TEST(WeightedQueueRandom, IsThePlainOrder) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto below = [&](uint32_t end) { return static_cast<int32_t>(random() % end); };
    FairQueue queue(Fairness::kWeighted);
    PlainQueue plain;
    std::deque<QueueEntry> entries;
    std::map<QueueEntry*, std::pair<int, bool>> live;  // (client, runs)
    uint64_t clock = 0;
    const auto wait = [&](QueueEntry* entry, PlainQueue::Client& client) {
      if (client.waiting.empty() && client.running == 0) client.since = ++clock;
      const auto later = std::find_if(client.waiting.begin(), client.waiting.end(),
                                      [&](QueueEntry* other) { return entry->position < other->position; });
      client.waiting.insert(later, entry);
    };
    for (int i = 0; i < 400; ++i) {
      if (live.empty() || below(5) == 0) {
        const float priority = below(5) == 0 ? 1.0f : 0.5f;
        QueueEntry& entry = entries.emplace_back(QueuePosition{priority, static_cast<uint64_t>(i)});
        entry.start_cost = below(100);
        const int number = below(5);
        PlainQueue::Client& client = plain.clients[number];
        plain.wake(client);
        client.weight = 1 + below(4);
        queue.add(entry, number == 0 ? std::nullopt : std::optional<uint64_t>(number),
                  static_cast<int32_t>(client.weight));
        wait(&entry, client);
        live[&entry] = {number, false};
      } else {
        const auto at = std::next(live.begin(), below(static_cast<uint32_t>(live.size())));
        auto& [entry, state] = *at;
        auto& [number, runs] = state;
        PlainQueue::Client& client = plain.clients[number];
        const int what = below(4);
        if (what == 0) {
          queue.remove(*entry, runs);
          if (runs)
            --client.running;
          else
            client.waiting.remove(entry);
          plain.left(client);
          live.erase(at);
        } else if (what == 1) {
          const int32_t tokens = below(50);
          queue.charge(*entry, tokens);
          client.counter += tokens * kUnit / client.weight;
        } else if (runs) {
          queue.pause(*entry);
          --client.running;
          wait(entry, client);
          runs = false;
        } else {
          client.counter += entry->start_cost * kUnit / client.weight;
          queue.start(*entry);
          client.waiting.remove(entry);
          ++client.running;
          client.since = ++clock;
          runs = true;
        }
      }
      for (const auto& [entry, state] : live)
        ASSERT_EQ(FairQueue::counterOf(*entry), plain.clients[state.first].counter) << "step " << i;
      std::vector<QueueEntry*> turns;
      queue.beginTurns();
      while (QueueEntry* next = queue.nextTurn()) turns.push_back(next);
      ASSERT_EQ(turns, plain.turns()) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace chorus
