// The changes of AdapterDirectory that clients ask for.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "lora/adapter_files.h"
#include "server/model/adapter_directory.h"

namespace chorus::server {

void AdapterDirectory::checkName(const std::string& name) const {
  if (!isServableName(name)) {
    fail(ErrorCode::kInvalidArgument,
         "this name cannot be a model name; use 1 to 255 bytes without slashes, control characters and a leading dot");
  }
  if (name == catalog_.base().name) fail(ErrorCode::kInvalidArgument, "the base model has this name");
}

AdapterRoots::Location AdapterDirectory::locate(const std::string& path) const {
  AdapterRoots::Location location = roots_.locate(path);
  if (!holdsAdapter(*adapterDirectoryWithin(location.directory->openDirectory(location.beneath, options_.links)))) {
    fail(ErrorCode::kNotFound, "the directory has no adapter");
  }
  return location;
}

AdapterDirectory::Loaded AdapterDirectory::replace(const std::string& name, const std::shared_ptr<Adapter>& adapter,
                                                   AdapterRoots::Location location, const Taking& how) {
  const bool listed = adapter->listed;
  const bool uploaded = location.keep != nullptr;
  retireReplaced();
  Version before{.location = roots_.load(name, std::move(location)),
                 .state = adapter->state,
                 .content_hash = adapter->content_hash,
                 .created = adapter->created};
  bool changed = true;
  try {
    changed = take(name, adapter, how);
  } catch (...) {
    roots_.load(name, std::move(before.location));
    throw;
  }
  adapter->missing_since.reset();
  adapter->withheld = false;
  adapter->failure = {};
  if (listed && changed) keepEarlier(name, std::move(before));
  const std::lock_guard lock(mutex_);
  versions_[name].uploaded = uploaded;
  if (!listed) return Loaded::kAdded;
  return changed ? Loaded::kReplaced : Loaded::kUnchanged;
}

void AdapterDirectory::keepEarlier(const std::string& name, Version version) {
  std::vector<Version> dropped;  // destroyed without the lock, because it may remove uploads
  const std::lock_guard lock(mutex_);
  std::vector<Version>& earlier = versions_[name].earlier;
  version.number = ++versions_made_;
  if (!version.content_hash.empty()) {
    const auto same = std::ranges::stable_partition(
        earlier, [&](const Version& other) { return other.content_hash != version.content_hash; });
    dropped.assign(std::make_move_iterator(same.begin()), std::make_move_iterator(same.end()));
    earlier.erase(same.begin(), same.end());
  }
  earlier.push_back(std::move(version));
  if (earlier.size() <= kMaxEarlier) return;
  dropped.push_back(std::move(earlier.front()));
  earlier.erase(earlier.begin());
}

AdapterDirectory::Loaded AdapterDirectory::load(const std::string& name, const std::string& path, bool replace_it,
                                                bool read_values, WorkMeter* meter) {
  checkName(name);
  admitName(name);
  AdapterRoots::Location location = locate(path);
  const auto [adapter, lock] = lockAdapter(name);
  if (adapter->listed && !replace_it) return Loaded::kExists;
  return replace(name, adapter, std::move(location), {.read_values = read_values, .meter = meter});
}

AdapterDirectory::Served AdapterDirectory::serve(const std::string& name, const std::string& path, WorkMeter* meter) {
  checkName(name);
  admitName(name);
  AdapterRoots::Location location = locate(path);
  const auto [adapter, lock] = lockAdapter(name);
  const Loaded how = replace(name, adapter, std::move(location), {.read_values = true, .meter = meter});
  return {how, adapter->content_hash};
}

AdapterDirectory::Served AdapterDirectory::upload(const std::string& name, std::string_view config,
                                                  std::string_view weights, WorkMeter* meter) {
  checkName(name);
  admitName(name);
  if (spool_ != nullptr) makeRoom(config.size() + weights.size());
  AdapterRoots::Location location = store(config, weights);
  const auto [adapter, lock] = lockAdapter(name);
  const Loaded how = replace(name, adapter, std::move(location), {.read_values = true, .meter = meter});
  return {how, adapter->content_hash};
}

AdapterRoots::Location AdapterDirectory::store(std::string_view config, std::string_view weights) {
  if (spool_ == nullptr) {
    fail(ErrorCode::kUnsupported, "this server takes no uploads; the operator can allow them with --lora_upload_dir");
  }
  UploadSpool::Upload stored = spool_->store(config, weights);
  return {std::move(stored.parent), std::move(stored.name), std::move(stored.keep), stored.bytes};
}

executor::AdapterReport AdapterDirectory::inspect(const std::string& path, WorkMeter* meter) {
  return inspect(locate(path), "", meter);
}

executor::AdapterReport AdapterDirectory::inspectUpload(std::string_view config, std::string_view weights,
                                                        WorkMeter* meter) {
  return inspect(store(config, weights), "upload", meter);
}

executor::AdapterReport AdapterDirectory::inspect(const AdapterRoots::Location& location, const std::string& name,
                                                  WorkMeter* meter) {
  executor::AdapterFiles files;
  files.name = name;
  files.path = location.directory->pathOf(location.beneath);
  files.open = [&location, links = options_.links] {
    return adapterDirectoryWithin(location.directory->openDirectory(location.beneath, links));
  };
  if (meter != nullptr) files.onWork = [meter](size_t bytes) { meter->charge(bytes); };
  return engine_.inspectAdapter(files);
}

void AdapterDirectory::makeRoom(uint64_t bytes) {
  const uint64_t missing = spool_->missingFor(bytes);
  if (missing == 0) return;
  std::vector<Version> forgotten;  // destroyed without the lock, because that removes files
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<uint64_t, std::vector<Version>*>> uploads;  // (number, where it is)
  uint64_t most = 0;
  for (auto& [_, versions] : versions_) {
    for (const Version& version : versions.earlier) {
      // With another owner, such as a request that runs, forgetting it would free nothing.
      if (version.location.keep.use_count() != 1) continue;
      uploads.emplace_back(version.number, &versions.earlier);
      most += version.location.bytes;
    }
  }
  if (most < missing) return;
  std::ranges::sort(uploads);
  forgotten.reserve(uploads.size());
  uint64_t freed = 0;
  for (const auto& [number, earlier] : uploads) {
    if (freed >= missing) break;
    const auto at = std::ranges::find(*earlier, number, &Version::number);
    freed += at->location.bytes;
    forgotten.push_back(std::move(*at));
    earlier->erase(at);
  }
}

AdapterDirectory::Served AdapterDirectory::rollBack(const std::string& name, const std::string& content_hash,
                                                    WorkMeter* meter) {
  const auto [adapter, adapter_lock] = lockAdapter(name);
  if (!adapter->listed) fail(ErrorCode::kNotFound, "no adapter of this name is served");
  Version version;
  {
    const std::lock_guard lock(mutex_);
    std::vector<Version>& earlier = versions_[name].earlier;
    const auto at = std::ranges::find_if(earlier.rbegin(), earlier.rend(), [&](const Version& other) {
      return content_hash.empty() || other.content_hash == content_hash;
    });
    if (at == earlier.rend()) {
      fail(ErrorCode::kNotFound, "{}",
           content_hash.empty() ? "the adapter has no earlier content"
                                : "the adapter has no earlier content of this hash");
    }
    version = std::move(*at);
    earlier.erase(std::next(at).base());
  }
  const uint64_t number = version.number;
  Version again = version;
  try {
    const Loaded how = replace(name, adapter, std::move(version.location),
                               {.read_values = true, .expected_state = version.state, .meter = meter});
    return {how, adapter->content_hash};
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kConflict || e.code() == ErrorCode::kNotFound) {
      fail(ErrorCode::kConflict, "the files of the earlier content have changed or are missing; it is forgotten");
    }
    const std::lock_guard lock(mutex_);
    std::vector<Version>& earlier = versions_[name].earlier;
    const auto place = std::ranges::upper_bound(earlier, number, {}, &Version::number);
    earlier.insert(place, std::move(again));
    throw;
  }
}

AdapterDirectory::History AdapterDirectory::historyOf(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  History history;
  const auto found = versions_.find(name);
  if (found == versions_.end()) return history;
  history.uploaded = found->second.uploaded;
  for (auto version = found->second.earlier.rbegin(); version != found->second.earlier.rend(); ++version) {
    history.earlier.push_back({version->content_hash, version->created});
  }
  return history;
}

bool AdapterDirectory::unload(const std::string& name) {
  std::shared_ptr<Adapter> adapter;
  {
    const std::lock_guard lock(mutex_);
    const auto found = adapters_.find(name);
    if (found == adapters_.end()) return false;
    adapter = found->second;
  }
  const std::lock_guard lock(adapter->mutex);
  if (!adapter->listed) return false;
  end(name, *adapter);
  roots_.unload(name);
  adapter->withheld = !isGone(name, false);
  adapter->failure = {};
  return true;
}

}  // namespace chorus::server
