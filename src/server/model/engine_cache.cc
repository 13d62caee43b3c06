#include "server/model/engine_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sha256.h"
#include "engine/build.h"
#include "engine/packing_version.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBuilding = "building-";
constexpr size_t kKeyDigits = 32;
constexpr size_t kEntriesPerSource = 2;

FileLock lockEntry(const fs::path& file) {
  bool told = false;
  while (true) {
    if (auto lock = FileLock::tryFile(file)) return std::move(*lock);
    if (!told) log::info("another process is preparing this model; waiting for it");
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void syncPath(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const int result = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  if (result != 0 && reason != EINVAL) {
    fail(ErrorCode::kExhausted, "{}: cannot write: {}", path.string(), std::strerror(reason));
  }
}

std::vector<fs::path> regularFiles(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void removeQuietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

fs::path defaultCacheDirectory() {
  const auto variable = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const auto xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "chorus";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "chorus";
  fail(ErrorCode::kInvalidArgument, "no directory for the engine cache: set --cache_dir or HOME");
}

EngineCache::EngineCache(fs::path root)
    : root_([&] {
        std::error_code error;
        fs::create_directories(root, error);
        if (error) {
          fail(ErrorCode::kInvalidArgument, "--cache_dir {}: cannot create it: {}", root.string(), error.message());
        }
        return fs::absolute(root);
      }()),
      digests_(root_ / "digests.json") {}

EngineCache::~EngineCache() { digests_.save(); }

std::string EngineCache::keyFor(const EngineSource& source) {
  Sha256 hash;
  for (const auto& name : source.files()) {
    const fs::path file = fs::is_directory(source.model) ? source.model / name : source.model;
    if (!fs::is_regular_file(file)) fail(ErrorCode::kNotFound, "{}: the model's file is missing", file.string());
    hash.update(fmt::format("{} {} {}\n", name.string(), fs::file_size(file), digests_.of(file)));
  }
  hash.update(fmt::format("weights {}\npacking {}\n", source.weights, kPackingVersion));
  digests_.save();
  return hash.hex().substr(0, kKeyDigits);
}

bool EngineCache::isIntact(const fs::path& entry) {
  if (!fs::exists(entry / "manifest.json")) return false;
  try {
    const Json manifest = readJsonFile(entry / "manifest.json");
    for (const auto& [name, digest] : manifest.at("files").items()) {
      if (digests_.of(entry / name) == digest.get<std::string>()) continue;
      log::warn("{}: the file was changed after the engine was built; building again", (entry / name).string());
      return false;
    }
    return true;
  } catch (const std::exception& e) {
    log::warn("cached engine is damaged ({}); building again", e.what());
    return false;
  }
}

fs::path EngineCache::ensure(const std::string& key, const EngineSource& source, const Builder& build) {
  const FileLock lock = lockEntry(root_ / (key + ".lock"));
  const fs::path entry = root_ / key;
  if (!isIntact(entry)) {
    fs::remove_all(entry);
    // A running builder holds the lock of its entry; this one holds its own.
    removeStale(root_, kBuilding, [&](const fs::path& staging) {
      const std::string other = staging.filename().string().substr(kBuilding.size(), key.size());
      return other == key ? std::optional(FileLock()) : FileLock::tryFile(root_ / (other + ".lock"));
    });
    buildEntry(key, source, build);
    prune(key, source.model);
  }
  std::error_code ignored;
  fs::last_write_time(entry, fs::file_time_type::clock::now(), ignored);
  digests_.save();
  return entry / "engine";
}

fs::path EngineCache::withLimits(const std::string& key, const BuildConfig& limits) {
  Sha256 hash;
  hash.update(limits.toJson().dump());
  const fs::path entry = root_ / key;
  const fs::path directory = entry / ("limits-" + hash.hex().substr(0, kKeyDigits));
  const FileLock lock = lockEntry(root_ / (key + ".lock"));
  if (!fs::exists(directory)) linkEngine(entry / "engine", directory, limits);
  return directory;
}

bool EngineCache::mayHold(const fs::path& source) const {
  const std::string name = fs::absolute(source).lexically_normal().string();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root_, ignored)) {
    const fs::path manifest = entry.path() / "manifest.json";
    if (!fs::exists(manifest, ignored)) continue;
    try {
      if (jsonGet<std::string>(readJsonFile(manifest), "source", manifest.string()) == name) return true;
    } catch (const Error&) {
      continue;
    }
  }
  return false;
}

void EngineCache::discard(const std::string& key) {
  const FileLock lock = lockEntry(root_ / (key + ".lock"));
  removeQuietly(root_ / key);
}

void EngineCache::buildEntry(const std::string& key, const EngineSource& source, const Builder& build) {
  const fs::path staging = root_ / fmt::format("{}{}-{}", kBuilding, key, ::getpid());
  const fs::path work = staging / "work";
  try {
    removeQuietly(staging);
    fs::create_directories(work);
    build(work, staging / "engine");
    if (keyFor(source) != key) {
      fail(ErrorCode::kConflict, "{}: the model changed while it was prepared; start again when it is complete",
           source.model.string());
    }
    removeQuietly(work);
    Json files = Json::object();
    for (const auto& file : regularFiles(staging)) {
      syncPath(file);
      files[fs::relative(file, staging).string()] = digests_.of(file);
    }
    const Json manifest{{"source", fs::absolute(source.model).lexically_normal().string()}, {"files", files}};
    writeFileAtomically(staging / "manifest.json", manifest.dump(1) + "\n");
    syncPath(staging / "engine");
    syncPath(staging);
    fs::rename(staging, root_ / key);
    syncPath(root_);
    for (const auto& [name, digest] : files.items()) digests_.remember(root_ / key / name, digest.get<std::string>());
  } catch (const std::exception& e) {
    const std::string reason = e.what();
    const auto* own = dynamic_cast<const Error*>(&e);
    removeQuietly(staging);
    if (own != nullptr && own->code() != ErrorCode::kExhausted) throw;
    fail(ErrorCode::kExhausted, "cannot build the engine in {}: {}; free space there or choose another --cache_dir",
         root_.string(), reason);
  }
}

// Removes older entries of the same model. An entry may be in use: its server keeps the files mapped.
void EngineCache::prune(const std::string& key, const fs::path& model) {
  const std::string name = fs::absolute(model).lexically_normal().string();
  std::vector<std::pair<fs::file_time_type, fs::path>> others;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root_, ignored)) {
    const fs::path manifest = entry.path() / "manifest.json";
    if (entry.path().filename() == key || !fs::exists(manifest, ignored)) continue;
    try {
      if (jsonGet<std::string>(readJsonFile(manifest), "source", manifest.string()) != name) continue;
    } catch (const Error&) {
      continue;
    }
    others.emplace_back(fs::last_write_time(entry.path(), ignored), entry.path());
  }
  std::sort(others.rbegin(), others.rend());
  for (size_t i = kEntriesPerSource - 1; i < others.size(); ++i) {
    const fs::path& path = others[i].second;
    if (const auto lock = FileLock::tryFile(root_ / (path.filename().string() + ".lock"))) {
      log::info("removing an older engine of this model from the cache: {}", path.filename().string());
      removeQuietly(path);
    }
  }
}

}  // namespace chorus::server
