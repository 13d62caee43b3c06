// Worker threads that load adapters, so that the step thread never reads a file or packs a weight.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
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

  // Loads are begun in order. One whose files are being rewritten (AdapterUnsettled) waits, kTries times at most, and
  // others go on. Thread-safe, as is takeDone.
  static constexpr int kTries = 4;
  void submit(AdapterKey key, std::shared_ptr<const AdapterSource> source);
  std::vector<AdapterLoad> takeDone();

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    AdapterKey key;
    std::shared_ptr<const AdapterSource> source;
    Clock::time_point not_before;
    int tries = 0;
  };
  void work();
  // Waits for the next task. False when there will be none.
  bool next(Task& task, std::unique_lock<std::mutex>& lock);

  LoadAdapter load_;
  std::function<void()> on_done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  std::vector<AdapterLoad> done_;
  bool stop_ = false;
  std::vector<std::thread> workers_;  // last: they use all of the above
};

}  // namespace chorus
