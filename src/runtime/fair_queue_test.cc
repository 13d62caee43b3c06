#include "runtime/fair_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <random>

namespace chorus {
namespace {

TEST(FairQueue, AClientWithoutRunningRequestsGoesBeforeAThousandOfAnother) {
  FairQueue queue;
  std::deque<QueueEntry> many;
  for (uint64_t i = 0; i < 1000; ++i) queue.add(many.emplace_back(QueuePosition{0.5f, i}), 1);
  for (int i = 0; i < 3; ++i) queue.start(many[static_cast<size_t>(i)]);
  QueueEntry other(QueuePosition{0.5f, 2000});
  queue.add(other, 2);
  queue.beginTurns();
  EXPECT_EQ(queue.runningOfNext(), 0);
  EXPECT_EQ(queue.nextTurn(), &other);
  EXPECT_EQ(queue.nextTurn(), &many[3]);
  EXPECT_EQ(queue.nextTurn(), &many[4]);
}

TEST(FairQueue, APausedRequestIsAheadOfItsClientsOtherRequests) {
  FairQueue queue;
  std::deque<QueueEntry> all;
  for (uint64_t i = 0; i < 4; ++i) queue.add(all.emplace_back(QueuePosition{0.5f, i}), 1);
  queue.start(all[0]);
  queue.start(all[1]);
  queue.pause(all[1]);
  queue.beginTurns();
  EXPECT_EQ(queue.nextTurn(), &all[1]);
  EXPECT_EQ(queue.nextTurn(), &all[2]);
}

TEST(FairQueue, AClientsTurnsMayEndEarly) {
  FairQueue queue;
  std::deque<QueueEntry> all;
  for (uint64_t i = 0; i < 6; ++i) queue.add(all.emplace_back(QueuePosition{0.5f, i}), i % 3);
  queue.beginTurns();
  EXPECT_EQ(queue.nextTurn(), &all[0]);
  EXPECT_EQ(queue.nextTurn(), &all[1]);
  queue.endTurnsOf(all[0]);
  EXPECT_EQ(queue.nextTurn(), &all[2]);
  EXPECT_EQ(queue.nextTurn(), &all[4]);
  queue.endTurnsOf(all[4]);
  EXPECT_EQ(queue.nextTurn(), &all[5]);
  EXPECT_EQ(queue.nextTurn(), nullptr);
}

// Reference implementation: searches all clients for every turn.
class PlainQueue {
 public:
  struct Client {
    int running = 0;
    uint64_t since = 0;
    std::list<QueueEntry*> waiting;
  };
  std::map<int, Client> clients;

  std::vector<QueueEntry*> turns() const {
    auto left = clients;
    uint64_t later = uint64_t{1} << 40;
    std::vector<QueueEntry*> order;
    for (;;) {
      Client* next = nullptr;
      for (auto& [_, client] : left) {
        if (client.waiting.empty()) continue;
        if (next == nullptr || before(client, *next)) next = &client;
      }
      if (next == nullptr) return order;
      order.push_back(next->waiting.front());
      next->waiting.pop_front();
      ++next->running;
      next->since = ++later;
    }
  }

 private:
  static bool before(const Client& a, const Client& b) {
    const float of_a = a.waiting.front()->position.priority, of_b = b.waiting.front()->position.priority;
    if (of_a != of_b) return of_a > of_b;
    return a.running != b.running ? a.running < b.running : a.since < b.since;
  }
};

TEST(FairQueueRandom, IsThePlainOrder) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    FairQueue queue;
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
      if (live.empty() || random() % 3 == 0) {
        const float priority = random() % 5 == 0 ? 1.0f : 0.5f;
        QueueEntry& entry = entries.emplace_back(QueuePosition{priority, static_cast<uint64_t>(i)});
        const int client = static_cast<int>(random() % 4);
        queue.add(entry, client == 0 ? std::nullopt : std::optional<uint64_t>(client));
        wait(&entry, plain.clients[client]);
        live[&entry] = {client, false};
      } else {
        auto at = std::next(live.begin(), static_cast<ptrdiff_t>(random() % live.size()));
        auto& [entry, state] = *at;
        auto& [number, runs] = state;
        PlainQueue::Client& client = plain.clients[number];
        const unsigned what = random() % 3;
        if (what == 0) {
          queue.remove(*entry, runs);
          if (runs)
            --client.running;
          else
            client.waiting.remove(entry);
          live.erase(at);
        } else if (runs) {
          queue.pause(*entry);
          --client.running;
          wait(entry, client);
          runs = false;
        } else {
          queue.start(*entry);
          client.waiting.remove(entry);
          ++client.running;
          client.since = ++clock;
          runs = true;
        }
      }
      std::vector<QueueEntry*> turns;
      queue.beginTurns();
      while (QueueEntry* next = queue.nextTurn()) turns.push_back(next);
      ASSERT_EQ(turns, plain.turns()) << "step " << i;
      size_t seen = 0;
      queue.forEachWaiting([&](QueueEntry&) { ++seen; });
      ASSERT_EQ(seen, turns.size());
      ASSERT_EQ(queue.numWaiting(), turns.size());
    }
  }
}

}  // namespace
}  // namespace chorus
