// Worker threads that prepare requests: each is parsed, rendered and tokenized under limits of work and time.
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
  bool reserve = true;                        // WorkerOptions::reserve
  std::chrono::milliseconds timeout{10'000};  // from the moment a worker begins the request
  uint64_t work_limit = 4'000'000'000;        // bytes of work (WorkMeter) for one request of any size
  // A short request may cost less, work_at_first + work_for_each_byte * (its bytes), so that small requests that are
  // expensive do not occupy the workers.
  uint64_t work_at_first = uint64_t{256} << 20;
  uint64_t work_for_each_byte = 400;
  size_t small_bytes = size_t{64} << 10;   // of several workers, one takes only requests of at most this size
  size_t jobs = 4096;                      // waiting jobs of all clients
  size_t client_jobs = 256;                // waiting jobs of one client
  size_t client_bytes = size_t{64} << 20;  // bytes of one client's waiting jobs
  int niceness = 5;                        // lower priority than the compute threads
};

class Intake {
 public:
  using Clock = WorkMeter::Clock;
  // Must charge the meter for its work. A meter that is cancelled before the work begins means that the server is
  // stopping.
  using Work = std::function<void(WorkMeter&)>;

  struct Job {
    uint64_t client = 0;
    size_t bytes = 0;                                       // size of the request
    Clock::time_point deadline = Clock::time_point::max();  // in addition to IntakeOptions::timeout
    Work work;
  };

  // Cancels the jobs that were submitted with it, from any thread, also before submit(). A job may submit the next one
  // with its own ticket.
  class Ticket {
   public:
    bool cancelled();
    // Drops a job that has not begun, and cancels the meter of a running one.
    void cancel();

   private:
    friend class Intake;
    std::mutex mutex_;
    std::weak_ptr<WorkerPool> pool_;
    std::optional<uint64_t> task_;  // set while the job waits
    WorkMeter* meter_ = nullptr;    // set while the job runs
    bool cancelled_ = false;
  };

  explicit Intake(const IntakeOptions& options);
  ~Intake();

  // Any thread. A job whose ticket is already cancelled is dropped; the answer is kAdded.
  FairQueue::Answer submit(const std::shared_ptr<Ticket>& ticket, Job job);
  // Cancels the meters of running jobs, and of jobs that begin later.
  void cancelAll();
  // See WorkerPool::finish().
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
