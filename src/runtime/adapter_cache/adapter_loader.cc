#include "runtime/adapter_cache/adapter_loader.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace chorus {

AdapterLoader::AdapterLoader(LoadAdapter load, int workers, std::function<void()> on_done)
    : load_(std::move(load)), on_done_(std::move(on_done)) {
  for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
}

AdapterLoader::~AdapterLoader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void AdapterLoader::submit(AdapterKey key, std::shared_ptr<const AdapterSource> source) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({key, std::move(source), {}});
  }
  wake_.notify_one();
}

std::vector<AdapterLoad> AdapterLoader::takeDone() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

bool AdapterLoader::next(Task& task, std::unique_lock<std::mutex>& lock) {
  while (!stop_) {
    const auto now = Clock::now();
    const auto ready = std::find_if(queue_.begin(), queue_.end(), [&](const Task& t) { return t.not_before <= now; });
    if (ready != queue_.end()) {
      task = std::move(*ready);
      queue_.erase(ready);
      return true;
    }
    if (queue_.empty()) {
      wake_.wait(lock);
    } else {
      const auto earlier = [](const Task& a, const Task& b) { return a.not_before < b.not_before; };
      wake_.wait_until(lock, std::min_element(queue_.begin(), queue_.end(), earlier)->not_before);
    }
  }
  return false;
}

void AdapterLoader::work() {
  std::unique_lock lock(mutex_);
  for (Task task; next(task, lock);) {
    lock.unlock();
    AdapterLoad result{task.key, nullptr, {}, {}};
    std::optional<std::chrono::nanoseconds> wait;
    try {
      result.parts = load_(*task.source);
    } catch (const AdapterUnsettled& unsettled) {
      wait = unsettled.wait;
    } catch (const std::exception& error) {
      result.error = error.what();
      result.error_code = errorCodeOf(error);
    } catch (...) {  // of a client's function that is told the content
      result.error = "what it threw is not a std::exception";
      result.error_code = ErrorCode::kInternal;
    }
    if (wait && ++task.tries < kTries) {
      lock.lock();
      task.not_before = Clock::now() + *wait;
      queue_.push_back(std::move(task));
      continue;
    }
    if (wait) {
      result.error = "its files change all the time; write new ones elsewhere and rename the directory into place";
      result.error_code = ErrorCode::kConflict;
    }
    task.source.reset();
    lock.lock();
    done_.push_back(std::move(result));
    lock.unlock();
    on_done_();
    lock.lock();
  }
}

}  // namespace chorus
