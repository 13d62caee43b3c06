// Preparing requests: each is parsed, rendered and tokenized on a worker under a limit of work and time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/work_meter.h"
#include "server/work/worker_pool.h"

namespace chorus::server {

struct IntakeOptions {
  int threads = 2;
  std::chrono::milliseconds timeout{10'000};  // from when a worker begins with a request
  uint64_t work_limit = 4'000'000'000;        // bytes of work for one request, whatever its size
  // What a request of few bytes may cost is less, so that small ones that cost much do not hold the workers.
  uint64_t work_at_first = uint64_t{256} << 20;
  uint64_t work_for_each_byte = 400;
  size_t small_bytes = size_t{64} << 10;   // one worker of several takes only requests of at most so many
  size_t jobs = 4096;                      // that wait
  size_t client_jobs = 256;                // of one client
  size_t client_bytes = size_t{64} << 20;  // of one client
  int niceness = 5;                        // below the threads that compute
};

class Intake {
 public:
  using Clock = WorkMeter::Clock;
  // Must charge the meter for what it does. A meter that is cancelled before the work begins: the server stops.
  using Work = std::function<void(WorkMeter&)>;

  struct Job {
    uint64_t client = 0;
    size_t bytes = 0;                                       // of the request
    Clock::time_point deadline = Clock::time_point::max();  // beside the intake's own timeout
    Work work;
  };

  // One job, to be given up by any thread, also before submit().
  class Ticket {
   public:
    // Drops the work that has not begun and stops the work that has.
    void cancel();

   private:
    friend class Intake;
    std::mutex mutex_;
    std::weak_ptr<WorkerPool> pool_;
    std::optional<uint64_t> task_;  // while it waits
    WorkMeter* meter_ = nullptr;    // while it is worked on
    bool cancelled_ = false;
  };

  explicit Intake(const IntakeOptions& options);
  ~Intake();

  // Any thread.
  FairQueue::Answer submit(const std::shared_ptr<Ticket>& ticket, Job job);
  // From now on work begins, and goes on, with a cancelled meter.
  void cancelAll();
  // As WorkerPool::finish.
  bool finish(std::chrono::milliseconds limit = std::chrono::milliseconds::max());

 private:
  struct Running;
  static void run(const std::shared_ptr<Ticket>& ticket, const std::shared_ptr<Running>& running,
                  const IntakeOptions& options, const Job& job);

  IntakeOptions options_;
  std::shared_ptr<Running> running_;
  std::shared_ptr<WorkerPool> pool_;
};

}  // namespace chorus::server
