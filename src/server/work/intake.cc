#include "server/work/intake.h"

#include <algorithm>
#include <set>

namespace chorus::server {

// The jobs that are running.
struct Intake::Running {
  std::mutex mutex;
  std::set<WorkMeter*> meters;
  bool cancelled = false;
};

bool Intake::Ticket::cancelled() {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

void Intake::Ticket::cancel() {
  std::shared_ptr<WorkerPool> pool;
  std::optional<uint64_t> task;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (meter_ != nullptr) meter_->cancel();
    task = task_;
    pool = pool_.lock();
  }
  // Outside the lock, because a dropped task may hold the last reference to this ticket.
  if (pool && task) pool->drop(*task);
}

Intake::Intake(const IntakeOptions& options)
    : options_(options),
      running_(std::make_shared<Running>()),
      pool_(std::make_shared<WorkerPool>(WorkerOptions{
          .threads = options.threads,
          .limits = {.tasks = options.jobs, .client_tasks = options.client_jobs, .client_bytes = options.client_bytes},
          .small_bytes = options.small_bytes,
          .reserve = options.reserve,
          .niceness = options.niceness})) {}

Intake::~Intake() { finish(); }

void Intake::run(const std::shared_ptr<Ticket>& ticket, const std::shared_ptr<Running>& running,
                 const IntakeOptions& options, const Job& job) {
  const uint64_t work = options.work_at_first + options.work_for_each_byte * job.bytes;
  WorkMeter meter(
      {.work = std::min(options.work_limit, work), .deadline = std::min(Clock::now() + options.timeout, job.deadline)});
  struct Registration {
    Registration(Running& all, Ticket& one, WorkMeter& meter_of_it) : running(all), ticket(one), meter(meter_of_it) {
      std::scoped_lock lock(running.mutex, ticket.mutex_);
      running.meters.insert(&meter);
      ticket.meter_ = &meter;
      ticket.task_.reset();
      if (running.cancelled) meter.cancel();
      abandoned = ticket.cancelled_;
    }
    ~Registration() {
      std::scoped_lock lock(running.mutex, ticket.mutex_);
      running.meters.erase(&meter);
      if (ticket.meter_ == &meter) ticket.meter_ = nullptr;  // else the ticket's next job is running
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    Running& running;
    Ticket& ticket;
    WorkMeter& meter;
    bool abandoned = false;
  };
  const Registration registration(*running, *ticket, meter);
  if (!registration.abandoned) job.work(meter);
}

FairQueue::Answer Intake::submit(const std::shared_ptr<Ticket>& ticket, Job job) {
  const uint64_t client = job.client;
  const size_t bytes = job.bytes;
  auto shared = std::make_shared<Job>(std::move(job));
  // Held until task_ is set: a worker that takes the task earlier waits for the mutex in run().
  std::lock_guard lock(ticket->mutex_);
  if (ticket->cancelled_) return FairQueue::Answer::kAdded;
  const auto [answer, id] = pool_->post(client, bytes, [ticket, running = running_, options = options_, shared] {
    run(ticket, running, options, *shared);
  });
  if (answer == FairQueue::Answer::kAdded) {
    ticket->pool_ = pool_;
    ticket->task_ = id;
  }
  return answer;
}

void Intake::cancelAll() {
  std::lock_guard lock(running_->mutex);
  running_->cancelled = true;
  for (WorkMeter* meter : running_->meters) meter->cancel();
}

bool Intake::finish(std::chrono::milliseconds limit) { return pool_->finish(limit); }

}  // namespace chorus::server
