#include "server/model/adapter_directory.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/log.h"
#include "base/sha256.h"
#include "lora/adapter_files.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus::server {
namespace {

constexpr const char* kTemplates = "additional_chat_templates";

// Limit on the work of reading an adapter's tokenizer. One of 32 MB takes a second or two.
constexpr uint64_t kMaxWork = uint64_t{1} << 34;

// Thrown by onContent to end a registration whose content is served already.
struct Unchanged {};

}  // namespace

// Shared with the callbacks of one registration. done: the registration has its content, so later onContent calls come
// from loads.
struct AdapterDirectory::Registration {
  std::atomic<bool> done = false;
  std::shared_ptr<const TextCodec> text;  // the text of the registered content; guarded by the adapter's mutex
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

std::shared_ptr<const TextCodec> AdapterDirectory::readText(const Directory& directory, TextSource source,
                                                            Clock::duration limit) const {
  if (source == TextSource::kLater && hasTokenizerFiles(directory)) return nullptr;
  WorkMeter meter({.work = kMaxWork, .deadline = WorkMeter::Clock::now() + limit});
  return load_text_(directory, meter, source != TextSource::kMemory);
}

AdapterDirectory::Clock::duration AdapterDirectory::textTime(const WorkMeter* meter) {
  if (meter == nullptr || meter->limits().deadline == WorkMeter::Clock::time_point::max()) return kMaxTextTime;
  return std::min<Clock::duration>(kMaxTextTime, meter->limits().deadline - WorkMeter::Clock::now());
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
  const auto text = readText(*directory, how.text, textTime(how.meter));
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
  files.name = name;
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
  if (how.waited != nullptr) files.onWaited = [waited = how.waited](Clock::duration time) { *waited += time; };
  WorkMeter quick({.work = files.deferContent ? kQuickHeaderBytes : kQuickContentBytes});
  if (WorkMeter* const meter = how.quick ? &quick : how.meter) {
    files.onWork = [meter](size_t bytes) { meter->charge(bytes); };
  }
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
  if (!adapter->listed) return;  // it was removed or refused meanwhile
  if (adapter->registration != registration) {
    return log::warn("an earlier content of the adapter '{}' could not be loaded: {}", name, reason);
  }
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

}  // namespace chorus::server
