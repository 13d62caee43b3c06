#include "server/work/intake.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <future>
#include <latch>
#include <stdexcept>
#include <thread>

#include "base/testing/eventually.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;
using Clock = WorkMeter::Clock;

// The time of jobs that must run until they are cancelled.
constexpr auto kEndless = 10 * kPatience;

// Works until the meter stops it. Returns the reason.
WorkStopped::Reason workForEver(WorkMeter& meter) {
  try {
    while (true) {
      meter.charge(WorkMeter::kLookEvery);
      std::this_thread::sleep_for(milliseconds(1));
    }
  } catch (const WorkStopped& e) {
    return e.reason();
  }
}

struct Stopped {
  std::promise<void> begun;
  std::promise<WorkStopped::Reason> promise;
  std::future<WorkStopped::Reason> reason = promise.get_future();
  Intake::Work work() {
    return [this](WorkMeter& meter) {
      begun.set_value();
      promise.set_value(workForEver(meter));
    };
  }
  // Until a worker has begun it: until then it would be dropped when it is cancelled.
  void awaitBegin() { begun.get_future().wait(); }
};

TEST(Intake, TimeWorkAndClientsEndARequest) {
  Stopped late, dear, left;
  Intake intake({.threads = 1, .timeout = milliseconds(50)});
  intake.submit(std::make_shared<Intake::Ticket>(), {.work = late.work()});
  EXPECT_EQ(late.reason.get(), WorkStopped::Reason::kDeadline);
  Intake patient({.threads = 1, .timeout = kEndless, .work_limit = 10 * WorkMeter::kLookEvery});
  patient.submit(std::make_shared<Intake::Ticket>(), {.work = dear.work()});
  EXPECT_EQ(dear.reason.get(), WorkStopped::Reason::kWork);
  Stopped timed;
  patient.submit(std::make_shared<Intake::Ticket>(), {.deadline = Clock::now(), .work = timed.work()});
  EXPECT_EQ(timed.reason.get(), WorkStopped::Reason::kDeadline) << "the request's own time-out";
  Intake plain({.threads = 1, .timeout = kEndless});
  const auto ticket = std::make_shared<Intake::Ticket>();
  plain.submit(ticket, {.work = left.work()});
  left.awaitBegin();
  ticket->cancel();
  EXPECT_EQ(left.reason.get(), WorkStopped::Reason::kCancelled);
}

TEST(Intake, RequestsThatEndBeforeTheyBeginAreFreedAtOnce) {
  Stopped busy;
  Intake intake({.threads = 1, .reserve = false, .timeout = kEndless});
  const auto first = std::make_shared<Intake::Ticket>();
  intake.submit(first, {.work = busy.work()});
  busy.awaitBegin();
  const auto held = std::make_shared<int>(0);
  std::atomic<bool> ran{false};
  for (int i = 0; i < 1000; ++i) {
    const auto ticket = std::make_shared<Intake::Ticket>();
    if (i % 2) ticket->cancel();
    intake.submit(ticket, {.client = 1, .work = [held, &ran](WorkMeter&) { ran = true; }});
    ticket->cancel();
    EXPECT_EQ(held.use_count(), 1);
  }
  first->cancel();
  intake.finish();
  EXPECT_FALSE(ran);
}

TEST(Intake, LargeRequestsNeverHoldAllWorkers) {
  Intake intake(
      {.threads = 2, .reserve = false, .timeout = kEndless, .work_at_first = uint64_t{4} << 30, .small_bytes = 100});
  std::vector<std::shared_ptr<Intake::Ticket>> large;
  std::atomic<int> running{0};
  for (uint64_t i = 0; i < 8; ++i) {
    large.push_back(std::make_shared<Intake::Ticket>());
    intake.submit(large.back(), {.client = i, .bytes = 101, .work = [&](WorkMeter& meter) {
                                   ++running;
                                   workForEver(meter);
                                 }});
  }
  std::promise<void> done;
  intake.submit(std::make_shared<Intake::Ticket>(), {.bytes = 100, .work = [&](WorkMeter&) { done.set_value(); }});
  EXPECT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_LE(running, 1);
  for (const auto& ticket : large) ticket->cancel();
  EXPECT_TRUE(intake.finish(kPatience));
}

// Small requests can be slow too: one client's could occupy every worker that takes them.
TEST(Intake, SlowRequestsOfOneClientDoNotDelayAnother) {
  Intake intake({.threads = 2, .timeout = kEndless, .work_at_first = uint64_t{4} << 30});
  std::vector<std::shared_ptr<Intake::Ticket>> slow;
  std::atomic<int> running{0};
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_shared<Intake::Ticket>());
    intake.submit(slow.back(), {.client = 1, .work = [&](WorkMeter& meter) {
                                  ++running;
                                  workForEver(meter);
                                }});
  }
  // Each is another client's: if a thread is held up, a request that does nothing counts as slow, too.
  for (uint64_t i = 0; i < 3; ++i) {
    std::promise<void> done;
    intake.submit(std::make_shared<Intake::Ticket>(), {.client = 2 + i, .work = [&](WorkMeter&) { done.set_value(); }});
    EXPECT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  }
  EXPECT_LE(running, 2);
  for (const auto& ticket : slow) ticket->cancel();
  EXPECT_TRUE(intake.finish(kPatience));
}

// Nor do those of several clients, once each has had one.
TEST(Intake, SlowRequestsOfSeveralClientsDoNotDelayAnother) {
  Intake intake({.threads = 2, .timeout = kEndless, .work_at_first = uint64_t{4} << 30});
  for (uint64_t client = 1; client <= 3; ++client) {
    std::promise<void> done;
    intake.submit(std::make_shared<Intake::Ticket>(), {.client = client, .work = [&](WorkMeter&) {
                                                         const std::clock_t begin = std::clock();
                                                         while (std::clock() - begin < CLOCKS_PER_SEC / 20) {
                                                         }
                                                         done.set_value();
                                                       }});
    done.get_future().wait();
  }
  // A thread notes how long a task took before it begins the next one. These requests are over only when each of the
  // three threads has begun one of them.
  std::latch all(3);
  for (uint64_t client = 11; client <= 13; ++client) {
    intake.submit(std::make_shared<Intake::Ticket>(),
                  {.client = client, .work = [&](WorkMeter&) { all.arrive_and_wait(); }});
  }
  all.wait();
  std::vector<std::shared_ptr<Intake::Ticket>> slow;
  std::atomic<int> running{0};
  for (uint64_t i = 0; i < 12; ++i) {
    slow.push_back(std::make_shared<Intake::Ticket>());
    intake.submit(slow.back(), {.client = 1 + i % 3, .work = [&](WorkMeter& meter) {
                                  ++running;
                                  workForEver(meter);
                                }});
  }
  EXPECT_TRUE(eventually([&] { return running == 2; }));
  for (uint64_t i = 0; i < 3; ++i) {
    std::promise<void> done;
    intake.submit(std::make_shared<Intake::Ticket>(), {.client = 4 + i, .work = [&](WorkMeter&) { done.set_value(); }});
    EXPECT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  }
  EXPECT_EQ(running, 2);
  for (const auto& ticket : slow) ticket->cancel();
  EXPECT_TRUE(intake.finish(kPatience));
}

TEST(Intake, ClientsHaveAShareOfTheQueue) {
  Stopped busy;
  Intake intake({.threads = 1, .reserve = false, .timeout = kEndless, .client_jobs = 2});
  const auto first = std::make_shared<Intake::Ticket>();
  intake.submit(first, {.work = busy.work()});
  busy.awaitBegin();
  const auto submit = [&](uint64_t client) {
    return intake.submit(std::make_shared<Intake::Ticket>(), {.client = client, .work = [](WorkMeter&) {}});
  };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(submit(5), FairQueue::Answer::kAdded);
  EXPECT_EQ(submit(5), FairQueue::Answer::kClientFull);
  EXPECT_EQ(submit(6), FairQueue::Answer::kAdded);
  first->cancel();
}

TEST(Intake, StopsWithinItsTimeWhateverRuns) {
  auto intake = std::make_unique<Intake>(IntakeOptions{.threads = 2, .timeout = kEndless});
  Stopped obedient;
  std::atomic<bool> queued_was_cancelled{false};
  intake->submit(std::make_shared<Intake::Ticket>(), {.work = obedient.work()});
  intake->submit(std::make_shared<Intake::Ticket>(),
                 {.bytes = 1 << 20, .work = [](WorkMeter& meter) { workForEver(meter); }});
  intake->submit(std::make_shared<Intake::Ticket>(),
                 {.bytes = 2 << 20, .work = [&](WorkMeter& meter) { queued_was_cancelled = meter.cancelled(); }});
  intake->cancelAll();
  EXPECT_TRUE(intake->finish(kPatience));
  EXPECT_EQ(obedient.reason.get(), WorkStopped::Reason::kCancelled);
  EXPECT_TRUE(queued_was_cancelled) << "what waits is answered, not lost";

  Intake stubborn({.threads = 1});
  const auto begun = std::make_shared<std::promise<void>>(), release = std::make_shared<std::promise<void>>();
  stubborn.submit(std::make_shared<Intake::Ticket>(), {.work = [begun, release](WorkMeter&) {
                    begun->set_value();
                    release->get_future().wait();
                  }});
  begun->get_future().wait();
  stubborn.cancelAll();
  EXPECT_FALSE(stubborn.finish(milliseconds(50))) << "it returns although the job has not ended";
  release->set_value();
}

TEST(WorkerPool, ATaskThatThrowsCostsNoThread) {
  WorkerPool pool(1);
  std::promise<void> done;
  pool.post(0, 1, [] { throw std::runtime_error("x"); });
  pool.post(0, 1, [] { throw std::bad_alloc(); });
  pool.post(0, 1, [] { throw 5; });
  pool.post(0, 1, [&] { done.set_value(); });
  EXPECT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_TRUE(pool.finish());
  EXPECT_TRUE(pool.finish());
}

}  // namespace
}  // namespace chorus::server
