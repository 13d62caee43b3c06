#include "runtime/adapter_cache/adapter_loader.h"

#include <algorithm>
#include <utility>

namespace chorus {
namespace {

// Error texts of up to 15 bytes fit std::string's own buffer (libstdc++), so the text in the handler cannot throw.
void setError(AdapterLoad& load, ErrorCode code, const char* text) noexcept {
  load.error_code = code;
  try {
    load.error = text;
  } catch (const std::bad_alloc&) {
    load.error = "out of memory";
    load.error_code = ErrorCode::kExhausted;
  }
}

}  // namespace

AdapterLoader::AdapterLoader(LoadAdapter load, int workers, std::function<void()> on_done)
    : load_(std::move(load)),
      on_done_(std::move(on_done)),
      running_(static_cast<size_t>(workers > 1 ? workers + 1 : workers)) {
  for (size_t i = 0; i < running_.size(); ++i) workers_.emplace_back([this, i] { work(i); });
}

AdapterLoader::~AdapterLoader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void AdapterLoader::submit(AdapterKey key, std::shared_ptr<const AdapterSource> source,
                           std::optional<uint64_t> client) {
  Tasks task(1);
  task.front().result.key = key;
  task.front().source = std::move(source);
  task.front().submitted = Clock::now();
  task.front().client = client;
  {
    const std::lock_guard lock(mutex_);
    // A client without waiting loads gets its turn after one turn of those that have waited longest, so that it neither
    // waits for all loads of another client nor keeps that from its turns by many single loads.
    const auto own = std::ranges::find(queue_, client, &Task::client);
    const auto first = own != queue_.end() ? own : std::ranges::min_element(queue_, {}, &Task::last_turn);
    task.front().last_turn = first != queue_.end() ? first->last_turn : turns_;
    queue_.splice(queue_.end(), task);
  }
  wake_.notify_all();
}

std::optional<AdapterLoad> AdapterLoader::takeDone() {
  const std::lock_guard lock(mutex_);
  if (done_.empty()) return std::nullopt;
  std::optional<AdapterLoad> load(std::move(done_.front().result));
  done_.pop_front();
  return load;
}

void AdapterLoader::take(Tasks::iterator task, Tasks& mine) noexcept {
  mine.splice(mine.end(), queue_, task);
  ++turns_;
  for (Task& other : queue_) {
    if (other.client == task->client) other.last_turn = turns_;
  }
}

bool AdapterLoader::mayTake(size_t worker, const Task& task) const {
  if (task.source->heavy && worker > 0) return false;
  const auto own = std::ranges::count_if(
      running_, [&](const Task* other) { return other != nullptr && other->client == task.client; });
  return own == 0 || own + 1 < std::ssize(running_);  // leaves a worker to other clients
}

bool AdapterLoader::next(Tasks& mine, size_t worker, std::unique_lock<std::mutex>& lock) {
  while (!stop_) {
    const auto now = Clock::now();
    auto earliest = Clock::time_point::max();
    auto first = queue_.end();
    for (auto task = queue_.begin(); task != queue_.end(); ++task) {
      if (!mayTake(worker, *task)) continue;
      if (task->not_before > now) {
        earliest = std::min(earliest, task->not_before);
      } else if (first == queue_.end() || task->last_turn < first->last_turn) {
        first = task;
      }
    }
    if (first != queue_.end()) {
      take(first, mine);
      running_[worker] = &mine.front();
      return true;
    }
    if (earliest == Clock::time_point::max()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, earliest);
    }
  }
  return false;
}

std::optional<std::chrono::nanoseconds> AdapterLoader::run(Task& task) const {
  try {
    task.result.parts = load_(*task.source);
  } catch (const AdapterUnsettled& unsettled) {
    if (++task.tries < kTries) return unsettled.wait;
    setError(task.result, ErrorCode::kConflict,
             "the adapter's files keep changing; write new ones elsewhere and rename the directory into place");
  } catch (const std::exception& error) {
    setError(task.result, errorCodeOf(error), error.what());
    task.result.reported = dynamic_cast<const AdapterRefused*>(&error) != nullptr;
  } catch (...) {  // a client's callback, such as on_content, may throw any type
    setError(task.result, ErrorCode::kInternal, "the load threw an object that is not a std::exception");
  }
  return std::nullopt;
}

void AdapterLoader::work(size_t worker) {
  std::unique_lock lock(mutex_);
  for (Tasks mine; next(mine, worker, lock);) {
    lock.unlock();
    Task& task = mine.front();
    const auto wait = run(task);
    if (wait) {
      task.not_before = Clock::now() + *wait;
      lock.lock();
      running_[worker] = nullptr;
      wake_.notify_all();  // the client may have been at its limit
      task.last_turn = turns_;
      queue_.splice(queue_.end(), mine);
      continue;
    }
    task.source.reset();
    task.result.seconds = std::chrono::duration<double>(Clock::now() - task.submitted).count();
    lock.lock();
    running_[worker] = nullptr;
    wake_.notify_all();
    done_.splice(done_.end(), mine);
    lock.unlock();
    on_done_();
    lock.lock();
  }
}

}  // namespace chorus
