// Worker threads that load adapters, so that the step thread never reads a file or packs a weight.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

struct AdapterLoad {
  AdapterKey key;
  std::shared_ptr<const PreparedAdapter> parts;  // null: it failed
  std::string error;                             // one line
  ErrorCode error_code = ErrorCode::kInternal;
};

class AdapterLoader {
 public:
  // on_done is called on a worker after each load, to wake whoever takes the results.
  AdapterLoader(LoadAdapter load, int workers, std::function<void()> on_done);
  // Drops what has not begun and waits for the rest.
  ~AdapterLoader();
  AdapterLoader(const AdapterLoader&) = delete;
  AdapterLoader& operator=(const AdapterLoader&) = delete;

  // Every load has its worker in the order of submission, but heavy ones (AdapterSource::heavy) have the first worker
  // alone, so that they hold up no others where there are several workers. A load whose files are being rewritten
  // (AdapterUnsettled) waits, kTries times at most, and others go on. Thread-safe, as is takeDone.
  static constexpr int kTries = 4;
  void submit(AdapterKey key, std::shared_ptr<const AdapterSource> source);
  // The next that ended; nullopt: none.
  std::optional<AdapterLoad> takeDone();

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    AdapterLoad result;
    std::shared_ptr<const AdapterSource> source;
    Clock::time_point not_before;
    int tries = 0;
  };
  // Tasks move from list to list: a worker that has no memory left can still say so.
  using Tasks = std::list<Task>;
  void work(bool takes_heavy);
  // Waits for the next task and moves it to `mine`. False when there will be none.
  bool next(Tasks& mine, bool takes_heavy, std::unique_lock<std::mutex>& lock);
  // How long to wait before another try; nullopt when the task has its result.
  std::optional<std::chrono::nanoseconds> run(Task& task) const;

  LoadAdapter load_;
  std::function<void()> on_done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Tasks queue_, done_;
  bool stop_ = false;
  std::vector<std::thread> workers_;  // last: they use all of the above
};

}  // namespace chorus
