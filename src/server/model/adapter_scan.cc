// The scans of AdapterDirectory: what was added, replaced or removed beneath its roots since the last one.
#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "server/model/adapter_directory.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus::server {
namespace {

// Whether the same call on the same files may succeed later. Other errors are a property of the files.
bool mayPass(ErrorCode code) {
  switch (code) {
    case ErrorCode::kExhausted:
    case ErrorCode::kBusy:
    case ErrorCode::kConflict:
    case ErrorCode::kInternal:
      return true;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCorrupt:
    case ErrorCode::kTooLarge:
      break;
  }
  return false;
}

// Thrown by AdapterDirectory::lookWith.
struct TextUnread {};

}  // namespace

// Limits the log to kMost warnings when many subdirectories cannot be served.
class AdapterDirectory::Warnings {
 public:
  ~Warnings() {
    if (count_ > kMost)
      log::warn("{} more adapters are left out or still served with their old content", count_ - kMost);
  }
  void add(std::string_view what, const char* why) {
    if (++count_ <= kMost) log::warn("{}: {}", what, why);
  }

 private:
  static constexpr size_t kMost = 20;
  size_t count_ = 0;
};

bool AdapterDirectory::look(const std::string& name, bool defer_texts, Found& found, Warnings& warnings) {
  try {
    return lookWith(nullptr, name, defer_texts, found, warnings);
  } catch (const TextUnread&) {
    // The text is read without the adapter's mutex, because the engine's loaders may wait for that.
    const ReadAhead ahead = readAhead(name);
    return lookWith(&ahead, name, defer_texts, found, warnings);
  }
}

AdapterDirectory::ReadAhead AdapterDirectory::readAhead(const std::string& name) const {
  ReadAhead ahead;
  const auto begin = Clock::now();
  try {
    const auto directory = roots_.open(name);
    State state = stateOf(*directory);
    ahead.state = std::move(state.digest);
    if (state.refusal) throw Error(*state.refusal);
    ahead.text = readText(*directory, TextSource::kFiles);
  } catch (const std::exception&) {
    ahead.error = std::current_exception();
  }
  ahead.took = Clock::now() - begin;
  return ahead;
}

bool AdapterDirectory::lookWith(const ReadAhead* ahead, const std::string& name, bool defer_texts, Found& found,
                                Warnings& warnings) {
  const auto [adapter, lock] = lockAdapter(name);
  const bool listed = adapter->listed;
  const bool without_text = listed && adapter->text == nullptr;
  const auto begin = Clock::now();
  std::string tried;
  try {
    if (isGone(name, false)) {
      if (!listed) {
        adapter->withheld = false;
        adapter->failure = {};
        return true;
      }
      if (options_.refresh != AdapterRefresh::kSync) return true;
      if (!std::exchange(adapter->missing, true)) return false;
      end(name, *adapter);
      roots_.unload(name);
      adapter->failure = {};
      found.removed.push_back(name);
      return true;
    }
    adapter->missing = false;
    if (adapter->withheld) return true;
    State state;
    try {
      state = stateOf(*roots_.open(name));
    } catch (const Error& e) {
      state.digest = e.what();
    }
    const bool same = listed && adapter->state == state.digest;
    if (same && (!without_text || defer_texts)) return true;
    // Content that changed before its text was read is taken in every mode: nobody has seen the old one.
    if (listed && !without_text && options_.refresh == AdapterRefresh::kAdd) return true;
    if (adapter->failure.state == state.digest && begin < adapter->failure.retry_at) return true;
    const bool later = defer_texts && !listed;
    const auto source = later ? TextSource::kLater : ahead == nullptr ? TextSource::kFiles : TextSource::kMemory;
    const auto check_text = [&] {
      if (source == TextSource::kFiles && hasTokenizerFiles(*roots_.open(name))) throw TextUnread();
      if (ahead != nullptr && ahead->error && ahead->state == tried) std::rethrow_exception(ahead->error);
    };
    if (same) {
      tried = std::move(state.digest);
      check_text();
      addText(name, *adapter, source);
      adapter->failure = {};
      return true;
    }
    // An adapter without a text is taken at once, so that nobody can delay it by changing its files again and again.
    if (!adapter->state.empty() && !without_text && quietIn(state.newest_change_ns).count() > 0) return false;
    tried = std::move(state.digest);
    if (!isServableName(name)) {
      fail(ErrorCode::kInvalidArgument, "{}: this directory name cannot be a model name; rename the directory",
           roots_.pathOf(name).string());
    }
    check_text();
    const bool changed = take(name, adapter, {.text = source});
    if (!listed) {
      found.added.push_back(name);
    } else if (changed) {
      found.replaced.push_back(name);
    }
    adapter->failure = {};
  } catch (const std::exception& e) {
    const bool may_pass = mayPass(errorCodeOf(e)) || isGone(name, false);  // the directory may come back as it was
    if (without_text && !may_pass) end(name, *adapter);
    const bool first = noteFailure(*adapter, std::move(tried), may_pass,
                                   Clock::now() - begin + (ahead != nullptr ? ahead->took : Clock::duration()));
    const char* const what = !adapter->listed           ? "adapter left out"
                             : adapter->text == nullptr ? "adapter is listed, but its tokenizer could not be read yet"
                                                        : "adapter is still served with its old content";
    if (first) warnings.add(what, e.what());
  }
  return true;
}

void AdapterDirectory::retireReplaced() {
  const std::lock_guard lock(mutex_);
  std::erase_if(replaced_, [&](const ReplacedId& replaced) {
    if (!replaced.hold.expired()) return false;
    engine_.unregisterAdapter(replaced.id);
    return true;
  });
}

std::vector<std::string> AdapterDirectory::namesToLookAt() {
  std::vector<std::string> names;
  std::set<std::string> rest;
  std::map<std::string, std::shared_ptr<Adapter>> known;
  {
    const std::lock_guard lock(mutex_);
    known = adapters_;
  }
  for (const auto& [name, adapter] : known) {
    const std::lock_guard lock(adapter->mutex);
    if (adapter->listed) {
      names.push_back(name);
    } else {
      rest.insert(name);
    }
  }
  const AdapterRoots::Names there = roots_.names(kMaxAdapters);
  for (const std::string& name : there.names) {
    if (!std::ranges::binary_search(names, name)) rest.insert(name);
  }
  if (!there.complete) {
    log::warn("{}: more than {} subdirectories; the rest is ignored", roots_.text(), kMaxAdapters);
  }
  names.insert(names.end(), rest.begin(), rest.end());
  return names;
}

void AdapterDirectory::forgetEnded() {
  const std::lock_guard lock(mutex_);
  std::erase_if(adapters_, [](const auto& entry) {
    Adapter& adapter = *entry.second;
    // An adapter that a loader is reading is left to a later scan.
    const std::unique_lock reading(adapter.mutex, std::try_to_lock);
    return reading && !adapter.listed && !adapter.withheld && adapter.failure.state.empty();
  });
}

AdapterDirectory::Found AdapterDirectory::scan(const AdapterScanOptions& how) {
  retireReplaced();
  Found found;
  Warnings warnings;
  std::vector<std::string> left = namesToLookAt();
  Progress progress("adapters", left.size(), Progress::Unit::kItems);
  constexpr int kRounds = 3;  // files that are rewritten for longer are left to a later scan
  for (int round = 0; round < kRounds && !left.empty(); ++round) {
    if (round > 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    std::erase_if(left, [&](const std::string& name) {
      if (how.stop && how.stop()) return true;
      const bool done = look(name, how.defer_texts, found, warnings);
      if (done) progress.add(1);
      return done;
    });
  }
  forgetEnded();
  return found;
}

size_t AdapterDirectory::readTexts(Found& found, const std::function<bool()>& stop) {
  std::set<std::string> names;
  for (const auto& model : catalog_.list()) {
    if (model->text == nullptr) names.insert(model->name);
  }
  if (names.empty()) return 0;
  Warnings warnings;
  Progress progress("tokenizers of adapters", names.size(), Progress::Unit::kItems);
  size_t unread = 0;
  while (!names.empty() && !(stop && stop())) {
    catalog_.endWaitsBefore(TextWaits::Clock::now() - kMaxTextWait);
    const std::vector<std::string> awaited = catalog_.awaited();
    const auto first = std::ranges::find_if(awaited, [&](const std::string& name) { return names.contains(name); });
    const std::string name = first == awaited.end() ? *names.begin() : *first;
    names.erase(name);
    const bool done = look(name, false, found, warnings);
    const auto model = catalog_.find(name);
    if (done && (model == nullptr || model->text != nullptr)) {
      progress.add(1);
    } else {
      ++unread;
    }
  }
  return unread + names.size();
}

}  // namespace chorus::server
