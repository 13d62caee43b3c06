#include "server/model/adapter_directory.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "lora/adapter_files.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus::server {
namespace {

constexpr const char* kTemplates = "additional_chat_templates";

// Limits on what one subdirectory may cost a scan. A tokenizer of 32 MB takes a second or two.
constexpr uint64_t kMaxWork = uint64_t{1} << 34;
constexpr std::chrono::seconds kMaxTime{20};

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

// Thrown by onContent to end a registration whose content is served already.
struct Unchanged {};
// Thrown by AdapterDirectory::lookWith.
struct TextUnread {};

}  // namespace

// Shared with the callbacks of one registration. done: the registration has its content, so later onContent calls come
// from loads.
struct AdapterDirectory::Registration {
  std::atomic<bool> done = false;
  std::shared_ptr<const TextCodec> text;  // the text of the registered content; guarded by the adapter's mutex
};

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

AdapterDirectory::AdapterDirectory(const std::vector<AdapterPlace>& places, ModelCatalog& catalog, EngineClient& engine,
                                   LoadText loadText, const AdapterDirectoryOptions& options)
    : roots_(places, options.links, options.allowed_roots),
      catalog_(catalog),
      engine_(engine),
      load_text_(std::move(loadText)),
      options_(options) {
  if (!options.upload_directory.empty()) {
    spool_ = std::make_unique<UploadSpool>(options.upload_directory, options.upload_bytes);
  }
  roots_.warnOfNames();
}

AdapterDirectory::LockedAdapter AdapterDirectory::lockAdapter(const std::string& name) {
  while (true) {
    LockedAdapter locked;
    {
      const std::lock_guard lock(mutex_);
      auto& adapter = adapters_[name];
      if (adapter == nullptr) adapter = std::make_shared<Adapter>();
      locked.adapter = adapter;
    }
    locked.lock = std::unique_lock(locked.adapter->mutex);
    // forgetEnded() may have erased it before it was locked.
    const std::lock_guard lock(mutex_);
    const auto found = adapters_.find(name);
    if (found != adapters_.end() && found->second == locked.adapter) return locked;
  }
}

AdapterDirectory::State AdapterDirectory::stateOf(const Directory& directory) const {
  State state;
  Sha256 hash;
  const auto refuse = [&](const Error& error) {
    hash.update(error.what());
    if (!state.refusal) state.refusal = error;
  };
  const auto add = [&](const Directory& of) {
    try {
      const Directory::Names names = of.names(kMaxFiles);
      if (!names.complete) fail(ErrorCode::kUnsupported, "{}: more than {} files", of.path().string(), kMaxFiles);
      for (const std::string& name : names.names) {
        FileStamp stamp;
        try {
          stamp = of.stampOf(name).value_or(FileStamp{});
        } catch (const Error& e) {  // a refused link, or no permission to look
          refuse(e);
          continue;
        }
        hash.update(fmt::format("{} {} {} {} {} {}\n", name, stamp.device, stamp.inode, stamp.size, stamp.modified_ns,
                                stamp.changed_ns));
        state.newest_change_ns = std::max(state.newest_change_ns, stamp.changed_ns);
      }
    } catch (const Error& e) {
      refuse(e);
    }
  };
  add(directory);
  if (directory.isDirectory(kTemplates)) add(*directory.openDirectory(kTemplates, directory.links()));
  state.digest = hash.hex();
  if (state.refusal) return state;
  try {
    nemoArchiveIn(directory);
  } catch (const Error& e) {
    state.refusal = e;
  }
  return state;
}

bool AdapterDirectory::isGone(const std::string& name, bool with_files) const {
  try {
    const auto directory = roots_.open(name);
    if (!with_files) return false;
    return lacksAdapterFiles(*directory);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kNotFound;
  }
}

void AdapterDirectory::put(const std::string& name, Adapter& adapter) {
  // The digest of the files' state replaces the content's hash until that is known. Answers report the content that
  // they were generated with.
  const std::string& identity = adapter.content_hash.empty() ? adapter.state : adapter.content_hash;
  catalog_.putAdapter({.name = name,
                       .adapter_id = adapter.id,
                       .fingerprint = "fp_" + identity.substr(0, 12),
                       .created = adapter.created,
                       .id_holds = {adapter.id_hold},
                       .text = adapter.text});
  adapter.listed = true;
}

void AdapterDirectory::end(const std::string& name, Adapter& adapter) {
  catalog_.removeAdapter(name);
  adapter.listed = false;
  engine_.unregisterAdapter(adapter.id);
  adapter.state.clear();
  adapter.content_hash.clear();
  adapter.registration.reset();
  adapter.text.reset();
  Versions ended;  // destroyed without the lock, because it may remove uploads
  const std::lock_guard lock(mutex_);
  std::swap(ended, versions_[name]);
  versions_.erase(name);
}

std::shared_ptr<const TextCodec> AdapterDirectory::readText(const Directory& directory, TextSource source) const {
  if (source == TextSource::kLater && hasTokenizerFiles(directory)) return nullptr;
  WorkMeter meter({.work = kMaxWork, .deadline = WorkMeter::Clock::now() + kMaxTime});
  return load_text_(directory, meter, source != TextSource::kMemory);
}

void AdapterDirectory::addText(const std::string& name, Adapter& adapter, TextSource source) {
  adapter.text = readText(*roots_.open(name), source);
  adapter.registration->text = adapter.text;
  put(name, adapter);
}

bool AdapterDirectory::noteFailure(Adapter& adapter, std::string tried, bool may_pass, Clock::duration took) {
  // A directory whose attempts take long gets at most a seventeenth of the scanning thread's time, and ever less.
  constexpr int kWaitPerAttempt = 16, kMostDoublings = 8;
  constexpr Clock::duration kLongestWait = std::chrono::hours(1);
  Failure& failure = adapter.failure;
  if (tried.empty() || failure.state != tried) failure = {std::move(tried), 0, {}};
  const int doublings = std::min(failure.count++, kMostDoublings);
  failure.retry_at = Clock::time_point::max();
  if (may_pass) failure.retry_at = Clock::now() + std::min(took * (kWaitPerAttempt << doublings), kLongestWait);
  return failure.count == 1;
}

bool AdapterDirectory::take(const std::string& name, const std::shared_ptr<Adapter>& adapter, const Taking& how) {
  const auto directory = roots_.open(name);
  const State state = stateOf(*directory);
  if (!how.expected_state.empty() && state.digest != how.expected_state) {
    fail(ErrorCode::kConflict, "the files of this content have changed");
  }
  if (state.refusal) throw Error(*state.refusal);
  if (name == catalog_.base().name) {
    fail(ErrorCode::kInvalidArgument,
         "{}: the directory has the same name as the base model; rename it or set --model_name",
         directory->path().string());
  }
  const auto text = readText(*directory, how.text);
  // Requests that were tokenized with one text must not run with the weights of another, so a new text needs a new id.
  const bool known = !adapter->state.empty();
  const bool same_text = known && adapter->text == text;
  executor::IdType id = adapter->id;
  if (!same_text) {
    const std::lock_guard lock(mutex_);
    id = next_task_id_++;
  }
  std::string content_hash;
  const auto registration = std::make_shared<Registration>();
  registration->text = text;
  executor::AdapterFiles files;
  files.path = directory->path();
  files.open = roots_.opener(name);
  files.onGone = [this, name, adapter] { goneAtLoad(name, adapter); };
  // If it was loaded before, its content is read now and compared by hash. Otherwise nothing of it is cached, and its
  // first load reads it.
  files.deferContent = adapter->content_hash.empty() && !how.read_values;
  files.onRefused = [this, name, adapter, registration](const std::string& reason) {
    refusedAtLoad(name, adapter, registration, reason);
  };
  files.onContent = [&, this, name, adapter, registration](const std::string& hash) {
    if (registration->done.exchange(true)) return contentAtLoad(name, adapter, registration, hash);
    if (stateOf(*roots_.open(name)).digest != state.digest) {
      fail(ErrorCode::kConflict, "{}: its files change while they are read", roots_.pathOf(name).string());
    }
    content_hash = hash;
    if (same_text && hash == adapter->content_hash) throw Unchanged();
  };
  bool changed = true;
  // `state` is older than the headers that are read here, so the first load notices any later change.
  if (files.deferContent) registration->done = true;
  try {
    engine_.registerAdapter(id, std::move(files));
  } catch (const Unchanged&) {
    changed = false;
  }
  if (!same_text) {
    const std::lock_guard lock(mutex_);
    if (known) {
      replaced_.push_back({adapter->id, adapter->id_hold});
      engine_.moveAdapterPin(adapter->id, id);
    }
    adapter->id_hold = std::make_shared<int>();
  }
  adapter->state = state.digest;
  adapter->content_hash = std::move(content_hash);
  if (changed) adapter->registration = registration;
  adapter->text = text;
  adapter->id = id;
  if (changed) adapter->created = std::time(nullptr);
  if (changed || !adapter->listed) put(name, *adapter);
  return changed;
}

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

void AdapterDirectory::contentAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter,
                                     const std::shared_ptr<Registration>& registration, const std::string& hash) {
  const std::lock_guard lock(adapter->mutex);
  // Taking the files now would serve a name again of which a client was told that it is removed.
  if (!adapter->listed) fail(ErrorCode::kConflict, "adapter '{}' was removed while it was loaded", name);
  if (adapter->state != stateOf(*roots_.open(name)).digest) {
    take(name, adapter, {.text = TextSource::kMemory});
    if (adapter->text == nullptr && options_.on_text_left) options_.on_text_left();
  } else if (adapter->registration == registration && adapter->content_hash.empty()) {
    adapter->content_hash = hash;
    put(name, *adapter);
  }
  if (adapter->text == registration->text) return;
  fail(ErrorCode::kConflict, "adapter '{}' was replaced by one with another tokenizer; send the request again", name);
}

void AdapterDirectory::refusedAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter,
                                     const std::shared_ptr<Registration>& registration, const std::string& reason) {
  const std::lock_guard lock(adapter->mutex);
  if (!adapter->listed || adapter->registration != registration) return;
  log::warn("adapter left out: {}", reason);
  std::string state = adapter->state;
  end(name, *adapter);
  noteFailure(*adapter, std::move(state), false, {});
}

void AdapterDirectory::goneAtLoad(const std::string& name, const std::shared_ptr<Adapter>& adapter) {
  const std::lock_guard lock(adapter->mutex);
  if (!adapter->listed || !isGone(name, true)) return;
  log::info("adapter removed, its files are missing: {}", name);
  end(name, *adapter);
  roots_.unload(name);
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
