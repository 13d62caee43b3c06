// The scans of AdapterDirectory: what was added, replaced or removed beneath its roots since the last one.
#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_reader.h"
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

}  // namespace

// Logs at most kMost warnings, then one line that names the rest; the reasons of the rest go to the debug log.
class AdapterDirectory::Warnings {
 public:
  ~Warnings() {
    if (count_ <= kMost) return;
    const size_t rest = count_ - kMost;
    log::warn("{} more adapters are left out or still served with their old content: {}{}", rest, names_,
              named_ < rest ? ", ..." : "");
  }
  void add(std::string_view what, std::string_view name, const char* why) {
    if (++count_ <= kMost) return log::warn("{}: {}", what, why);
    log::debug("{}: {}", what, why);
    if (named_ == kMostNames || names_.size() + name.size() > kMostNameBytes) return;
    if (named_++ > 0) names_ += ", ";
    names_ += name;
  }

 private:
  static constexpr size_t kMost = 20, kMostNames = 100, kMostNameBytes = 2048;
  size_t count_ = 0;
  size_t named_ = 0;  // how many of the others are in names_
  std::string names_;
};

AdapterDirectory::Looked AdapterDirectory::look(const std::string& name, bool defer_texts, Found& found,
                                                Warnings& warnings) {
  const TurnTime time(waited_);
  const auto turn = turns_.find(name);
  const bool slow = turn != turns_.end() && turn->second.slow;
  const Looking how{.defer_texts = defer_texts, .leave = slow, .quick = true};
  const Looked looked = lookWith(nullptr, name, how, found, warnings);
  // A turn that only found the files unchanged does not show that the next one will be quick.
  if (time.took() > options_.quick_time) endTurn(name, time.took(), false);
  return looked;
}

AdapterDirectory::Looked AdapterDirectory::lookAndRead(const std::string& name, Found& found, Warnings& warnings) {
  const TurnTime time(waited_);
  Looked looked = lookWith(nullptr, name, {}, found, warnings);
  const bool reads = looked == Looked::kSlow;
  if (reads) {
    // The text is read without the adapter's mutex, because the engine's loaders may wait for that.
    const bool known_as_slow = turns_[name].slow;
    const ReadAhead ahead = readAhead(name, known_as_slow ? Clock::duration(kMaxTextTime) : options_.quick_time);
    if (ahead.out_of_time && !known_as_slow) {
      turns_[name] = {.slow = true, .last = Clock::now(), .rest_until = {}};
      return Looked::kSlow;
    }
    looked = lookWith(&ahead, name, {}, found, warnings);
  }
  endTurn(name, time.took(), reads);
  return looked;
}

void AdapterDirectory::endTurn(const std::string& name, Clock::duration took, bool text_was_read) {
  // A name that takes long gets at most a seventeenth of the scanning thread's time.
  constexpr int kRest = 16;
  constexpr Clock::duration kLongestRest = std::chrono::hours(1), kNoticeable = std::chrono::milliseconds(100);
  const auto now = Clock::now();
  Turn& turn = turns_[name];
  turn.last = now;
  // A turn in which no text was read does not show that the next one will be quick.
  if (text_was_read || took > options_.quick_time) turn.slow = took > options_.quick_time;
  if (turn.slow && took > kNoticeable) turn.rest_until = now + std::min(took * kRest, kLongestRest);
}

AdapterDirectory::ReadAhead AdapterDirectory::readAhead(const std::string& name, Clock::duration limit) const {
  ReadAhead ahead;
  const auto begin = Clock::now();
  try {
    const auto directory = roots_.open(name);
    State state = stateOf(*directory);
    ahead.state = std::move(state.digest);
    if (state.refusal) throw Error(*state.refusal);
    ahead.text = readText(*directory, TextSource::kFiles, limit);
  } catch (const std::exception&) {
    ahead.error = std::current_exception();
    ahead.out_of_time = Clock::now() - begin >= limit;
  }
  ahead.took = Clock::now() - begin;
  return ahead;
}

AdapterDirectory::Looked AdapterDirectory::lookWith(const ReadAhead* ahead, const std::string& name, const Looking& how,
                                                    Found& found, Warnings& warnings) {
  const auto [adapter, lock] = lockAdapter(name);
  const bool listed = adapter->listed;
  const bool without_text = listed && adapter->text == nullptr;
  const auto begin = Clock::now();
  const TurnTime time(waited_);
  std::string tried;
  try {
    if (isGone(name, false)) {
      if (!listed) {
        adapter->withheld = false;
        adapter->failure = {};
        return Looked::kDone;
      }
      if (options_.refresh != AdapterRefresh::kSync) return Looked::kDone;
      // A tool that replaces a directory renames two, so that there is none for a moment.
      if (!adapter->missing_since) adapter->missing_since = begin;
      constexpr std::chrono::milliseconds kMissingTime{500};
      if (begin - *adapter->missing_since < kMissingTime) return Looked::kAgain;
      end(name, *adapter);
      roots_.unload(name);
      adapter->failure = {};
      found.removed.push_back(name);
      return Looked::kDone;
    }
    adapter->missing_since.reset();
    if (adapter->withheld) return Looked::kDone;
    State state;
    try {
      state = stateOf(*roots_.open(name));
    } catch (const Error& e) {
      state.digest = e.what();
    }
    const bool same = listed && adapter->state == state.digest;
    if (same && (!without_text || how.defer_texts)) return Looked::kDone;
    // Content that changed before its text was read is taken in every mode: nobody has seen the old one.
    if (listed && !without_text && options_.refresh == AdapterRefresh::kAdd) return Looked::kDone;
    if (adapter->failure.state == state.digest && begin < adapter->failure.retry_at) return Looked::kDone;
    const bool later = how.defer_texts && !listed;
    const auto source = later ? TextSource::kLater : ahead == nullptr ? TextSource::kFiles : TextSource::kMemory;
    const auto is_slow = [&] {
      return ahead == nullptr && (how.leave || (source == TextSource::kFiles && hasTokenizerFiles(*roots_.open(name))));
    };
    const auto check_text = [&] {
      if (ahead != nullptr && ahead->error && ahead->state == tried) std::rethrow_exception(ahead->error);
    };
    if (same) {
      tried = std::move(state.digest);
      if (is_slow()) return Looked::kSlow;
      check_text();
      addText(name, *adapter, source);
      adapter->failure = {};
      return Looked::kDone;
    }
    // An adapter without a text is taken at once, so that nobody can delay it by changing its files again and again.
    if (!adapter->state.empty() && !without_text && quietIn(state.newest_change_ns).count() > 0) return Looked::kAgain;
    tried = std::move(state.digest);
    if (!isServableName(name)) {
      fail(ErrorCode::kInvalidArgument, "{}: this directory name cannot be a model name; rename the directory",
           roots_.pathOf(name).string());
    }
    if (is_slow()) return Looked::kSlow;
    check_text();
    const bool changed = take(name, adapter, {.text = source, .quick = how.quick, .waited = &waited_});
    if (!listed) {
      found.added.push_back(name);
    } else if (changed) {
      found.replaced.push_back(name);
    }
    adapter->failure = {};
  } catch (const std::exception& e) {
    if (how.quick && dynamic_cast<const WorkStopped*>(&e) != nullptr) {
      turns_[name].slow = true;
      return Looked::kSlow;
    }
    const bool may_pass = mayPass(errorCodeOf(e)) || isGone(name, false);  // the directory may come back as it was
    if (without_text && !may_pass) end(name, *adapter);
    const bool first = noteFailure(*adapter, std::move(tried), may_pass,
                                   time.took() + (ahead != nullptr ? ahead->took : Clock::duration()));
    const char* const what = !adapter->listed           ? "adapter left out"
                             : adapter->text == nullptr ? "adapter is listed, but its tokenizer could not be read yet"
                                                        : "adapter is still served with its old content";
    if (first) warnings.add(what, name, e.what());
  }
  return Looked::kDone;
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
  const AdapterRoots::Names there = roots_.names(options_.max_adapters);
  for (const std::string& name : there.names) {
    if (!std::ranges::binary_search(names, name)) rest.insert(name);
  }
  if (!there.complete) {
    log::warn("{}: more than {} subdirectories; the rest is ignored", roots_.text(), options_.max_adapters);
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

void AdapterDirectory::admitName(const std::string& name) {
  forgetEnded();
  const std::lock_guard lock(mutex_);
  if (adapters_.size() >= options_.max_adapters && !adapters_.contains(name)) {
    throw TooManyAdapters(options_.max_adapters);
  }
}

void AdapterDirectory::forgetTurns(const std::vector<std::string>& kept) {
  const std::set<std::string_view> names(kept.begin(), kept.end());
  std::erase_if(turns_, [&](const auto& turn) { return !names.contains(turn.first); });
}

AdapterDirectory::Found AdapterDirectory::scan(const AdapterScanOptions& how) {
  retireReplaced();
  Found found;
  Warnings warnings;
  std::vector<std::string> names = namesToLookAt();
  forgetTurns(names);
  left_.clear();
  Progress progress("adapters", names.size(), Progress::Unit::kItems);
  constexpr int kRounds = 3;  // files that are rewritten for longer are left to a later scan
  constexpr std::chrono::milliseconds kAwaitedEvery{100};
  // A scan may take long, and requests wait for slow tokenizers too.
  const auto slow_every = 2 * options_.quick_time;
  auto awaited_at = Clock::now(), slow_at = Clock::now() + slow_every;
  for (int round = 0; round < kRounds && !names.empty(); ++round) {
    if (round > 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    std::erase_if(names, [&](const std::string& name) {
      if (how.stop && how.stop()) return true;
      if (Clock::now() >= awaited_at) {
        const bool also_slow = Clock::now() >= slow_at;
        readAwaited(also_slow, found, warnings);
        awaited_at = Clock::now() + kAwaitedEvery;
        if (also_slow) slow_at = Clock::now() + slow_every;
      }
      const Looked looked = look(name, how.defer_texts, found, warnings);
      if (looked == Looked::kSlow) left_.insert(name);
      if (looked == Looked::kDone) progress.add(1);
      return looked != Looked::kAgain;
    });
  }
  forgetEnded();
  if (how.leave_slow) return found;
  if (how.defer_texts) {
    lookAtLeft(how, found, warnings);
  } else {
    readTexts(found, how.stop);
  }
  return found;
}

void AdapterDirectory::lookAtLeft(const AdapterScanOptions& how, Found& found, Warnings& warnings) {
  std::erase_if(left_, [&](const std::string& name) {
    if (how.stop && how.stop()) return false;
    const TurnTime time(waited_);
    const Looked looked = lookWith(nullptr, name, {.defer_texts = how.defer_texts}, found, warnings);
    endTurn(name, time.took(), false);
    return looked == Looked::kDone;
  });
}

void AdapterDirectory::readAwaited(bool also_slow, Found& found, Warnings& warnings) {
  const auto now = Clock::now();
  catalog_.endWaitsBefore(now - kMaxTextWait);
  std::optional<std::string> next;
  for (std::string& name : catalog_.awaited()) {
    const Turn& turn = turns_[name];
    if (turn.slow && (!also_slow || turn.rest_until > now)) continue;
    if (!next || turn.last < turns_[*next].last) next = std::move(name);
  }
  if (next) lookAndRead(*next, found, warnings);
}

AdapterDirectory::Order::const_iterator AdapterDirectory::nextOf(const Order& order) const {
  // One tenant's many quick names must not leave another's slow one without a turn for ever.
  const bool any_quick = !std::get<0>(*order.begin()), any_slow = std::get<0>(*order.rbegin());
  const bool slow = any_slow && (!any_quick || quick_in_row_ >= kQuickInRow);
  auto next = order.end();
  for (const std::string& name : catalog_.awaited()) {
    const auto turn = turns_.find(name);
    if (turn == turns_.end()) continue;
    const auto found = order.find({slow, turn->second.last, name});
    if (found != order.end() && (next == order.end() || std::get<1>(*found) < std::get<1>(*next))) next = found;
  }
  return next == order.end() ? order.lower_bound({slow, Clock::time_point::min(), {}}) : next;
}

size_t AdapterDirectory::readTexts(Found& found, const std::function<bool()>& stop) {
  std::set<std::string> names = left_;
  for (const auto& model : catalog_.list()) {
    if (model->text == nullptr) names.insert(model->name);
  }
  if (names.empty()) return 0;
  Order order;
  size_t left = 0;
  const auto now = Clock::now();
  for (const std::string& name : names) {
    const Turn& turn = turns_.try_emplace(name, Turn{.last = now}).first->second;
    if (turn.rest_until > now) {
      ++left;
    } else {
      order.emplace(turn.slow, turn.last, name);
    }
  }
  Warnings warnings;
  Progress progress("tokenizers of adapters", names.size(), Progress::Unit::kItems);
  while (!order.empty() && !(stop && stop())) {
    catalog_.endWaitsBefore(Clock::now() - kMaxTextWait);
    const auto [slow, last, name] = order.extract(nextOf(order)).value();
    quick_in_row_ = slow ? 0 : quick_in_row_ + 1;
    const Looked looked = lookAndRead(name, found, warnings);
    if (looked == Looked::kSlow) {
      order.emplace(true, turns_[name].last, name);
      continue;
    }
    const auto model = catalog_.find(name);
    if (looked == Looked::kDone && (model == nullptr || model->text != nullptr)) {
      left_.erase(name);
      progress.add(1);
    } else {
      ++left;
    }
  }
  return left + order.size();
}

}  // namespace chorus::server
