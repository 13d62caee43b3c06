// Worker threads that load adapters, so that the step thread never reads a file or packs a weight.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/adapter_error.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

struct AdapterLoad {
  AdapterKey key;
  std::shared_ptr<const PreparedAdapter> parts;  // null: the load failed
  std::string error;                             // one line
  ErrorCode error_code = ErrorCode::kInternal;
  bool reported = false;  // the error was an AdapterRefused
  // Set by AdapterStore::takeLoaded() if parts is null. It stays null if there is no memory for it.
  std::shared_ptr<const AdapterError> failure;
  double seconds = 0;  // from submit() to the end of the last attempt
};

class AdapterLoader {
 public:
  // on_done is called on a worker thread after each load, to wake the thread that calls takeDone().
  AdapterLoader(LoadAdapter load, int workers, std::function<void()> on_done);
  // Drops loads that have not begun and waits for those that run.
  ~AdapterLoader();
  AdapterLoader(const AdapterLoader&) = delete;
  AdapterLoader& operator=(const AdapterLoader&) = delete;

  // Workers take the loads of the clients in turn, those of one client in the order of submission. If there are several
  // workers, a client has at most that many; one more is added, so that another client's load need not wait. Only the
  // first worker takes heavy loads (AdapterSource::heavy). A
  // load that throws AdapterUnsettled is tried again after its `wait`, kTries attempts in all, while other loads go on.
  // submit() and takeDone() are thread-safe.
  static constexpr int kTries = 4;
  // client: that of the request that waits for the load; nullopt is a client too.
  void submit(AdapterKey key, std::shared_ptr<const AdapterSource> source,
              std::optional<uint64_t> client = std::nullopt);
  // The next finished load; nullopt if there is none.
  std::optional<AdapterLoad> takeDone();

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    AdapterLoad result;
    std::shared_ptr<const AdapterSource> source;
    Clock::time_point not_before;
    Clock::time_point submitted;
    std::optional<uint64_t> client;
    uint64_t last_turn = 0;  // of the client, counted over all clients
    int tries = 0;
  };
  // Tasks move between lists with splice(), which allocates nothing: a worker that is out of memory can still report
  // it.
  using Tasks = std::list<Task>;
  void work(size_t worker);
  bool mayTake(size_t worker, const Task& task) const;
  // Moves a task of queue_ to `mine`. It is a turn of its client.
  void take(Tasks::iterator task, Tasks& mine) noexcept;
  // Waits for the next task and moves it to `mine`. Returns false when the loader stops.
  bool next(Tasks& mine, size_t worker, std::unique_lock<std::mutex>& lock);
  // Runs one attempt. Returns how long to wait before the next one, or nullopt when the task has its result.
  std::optional<std::chrono::nanoseconds> run(Task& task) const;

  LoadAdapter load_;
  std::function<void()> on_done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Tasks queue_, done_;
  std::vector<const Task*> running_;  // of each worker; null: none
  uint64_t turns_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;  // last member: the workers use all of the above
};

}  // namespace chorus
