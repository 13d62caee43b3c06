#include "runtime/adapter_cache/adapter_loader.h"

#include <utility>

#include "base/pace.h"

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
    queue_.emplace_back(key, std::move(source));
  }
  wake_.notify_one();
}

std::vector<AdapterLoad> AdapterLoader::takeDone() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void AdapterLoader::work() {
  lowerThreadPriority();
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    auto [key, source] = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    AdapterLoad result{key, nullptr, {}, {}};
    try {
      result.parts = load_(*source);
    } catch (const std::exception& error) {
      result.error = error.what();
      result.error_code = errorCodeOf(error);
    }
    source.reset();
    lock.lock();
    done_.push_back(std::move(result));
    lock.unlock();
    on_done_();
  }
}

}  // namespace chorus
