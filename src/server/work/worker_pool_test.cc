#include "server/work/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <future>
#include <latch>

#include "base/testing/eventually.h"

namespace chorus::server {
namespace {

constexpr WorkerOptions kWithReserve{.threads = 2, .reserve = true};

// Takes more of the processor than a short task may.
void workSlowly() {
  const auto processor = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto end = processor() + WorkerOptions::kShortWork + std::chrono::milliseconds(1);
  while (processor() < end) {
  }
}

// Runs the task and waits for its end.
void runOne(WorkerPool& pool, uint64_t client, const WorkerPool::Task& task) {
  std::promise<void> done;
  pool.post(client, 1, [&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

// A thread notes how long a task took before it begins the next one. Returns when each thread of the pool has begun
// another task than those before.
void awaitNotes(WorkerPool& pool, std::ptrdiff_t threads) {
  std::latch all(threads), ended(threads);
  for (std::ptrdiff_t i = 0; i < threads; ++i) {
    pool.post(static_cast<uint64_t>(1'000'000 + i), 1, [&] {
      all.arrive_and_wait();
      ended.count_down();
    });
  }
  ended.wait();
}

// Tasks that run until release() is called.
class HeldTasks {
 public:
  explicit HeldTasks(WorkerPool& pool) : pool_(pool) {}
  void post(uint64_t client) {
    pool_.post(client, 1, [this] {
      ++running_;
      released_.wait();
    });
  }
  int running() const { return running_; }
  void release() { release_.set_value(); }

 private:
  WorkerPool& pool_;
  std::atomic<int> running_{0};
  std::promise<void> release_;
  std::shared_future<void> released_ = release_.get_future().share();
};

// The clients of one network of IPv6 may be hundreds, each a client of its own.
TEST(WorkerPool, TheReserveTakesNoTaskOfHundredsOfSlowClients) {
  constexpr uint64_t kClients = 200;
  WorkerPool pool(kWithReserve);
  for (uint64_t client = 1; client <= kClients; ++client) runOne(pool, client, workSlowly);
  awaitNotes(pool, 3);
  HeldTasks held(pool);
  for (uint64_t client = 1; client <= kClients; ++client) held.post(client);
  EXPECT_TRUE(eventually([&] { return held.running() == 2; }));
  for (uint64_t newcomer = kClients + 1; newcomer <= kClients + 3; ++newcomer) {
    std::promise<void> done;
    const auto posted = pool.post(newcomer, 1, [&] { done.set_value(); });
    if (done.get_future().wait_for(kPatience) == std::future_status::ready) continue;
    ADD_FAILURE() << "a newcomer waits for slow tasks";
    pool.drop(posted.id);
    break;
  }
  EXPECT_EQ(held.running(), 2);
  held.release();
  pool.finish();
}

}  // namespace
}  // namespace chorus::server
