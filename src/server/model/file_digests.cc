#include "server/model/file_digests.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sha256.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

int64_t nanoseconds(const timespec& t) { return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec; }

std::string keyOf(const fs::path& file) { return fs::absolute(file).lexically_normal().string(); }

struct stat statusOf(const fs::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) {
    fail(ErrorCode::kNotFound, "{}: {}", file.string(), std::strerror(errno));
  }
  return status;
}

std::string digestOf(const fs::path& file, uint64_t size) {
  Sha256 hash;
  if (size > 0) {
    const MappedFile mapped(file);
    mapped.willNeed();
    hash.update(mapped.bytes());
  }
  return hash.hex();
}

}  // namespace

FileDigests::FileDigests(fs::path memo) : memo_(std::move(memo)) {
  if (!fs::exists(memo_)) return;
  try {
    const Json json = readJsonFile(memo_);
    for (const auto& [path, e] : json.items()) {
      entries_[path] = {e.at("device"),      e.at("inode"),      e.at("size"),
                        e.at("modified_ns"), e.at("changed_ns"), e.at("sha256")};
    }
  } catch (const std::exception& e) {
    log::debug("{}: ignored: {}", memo_.string(), e.what());
    entries_.clear();
  }
}

FileDigests::Entry FileDigests::describe(const fs::path& file) {
  const struct stat status = statusOf(file);
  return {status.st_dev,
          status.st_ino,
          static_cast<uint64_t>(status.st_size),
          nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim),
          ""};
}

void FileDigests::remember(const fs::path& file, const std::string& digest) {
  Entry entry = describe(file);
  entry.digest = digest;
  entries_[keyOf(file)] = entry;
  changed_ = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

std::string FileDigests::of(const fs::path& file) {
  const std::string key = keyOf(file);
  Entry entry = describe(file);
  if (const auto known = entries_.find(key); known != entries_.end()) {
    entry.digest = known->second.digest;
    if (known->second == entry) return entry.digest;
  }
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  entry.digest = digestOf(file, entry.size);
  // A file that changed just now may change again within the same tick of the file system's clock.
  constexpr int64_t kSettledNs = 2'000'000'000;
  if (nanoseconds(now) - entry.changedNs > kSettledNs) {
    entries_[key] = entry;
    changed_ = true;
  } else {
    entries_.erase(key);
  }
  return entry.digest;
}

void FileDigests::save() {
  if (!changed_) return;
  std::erase_if(entries_, [](const auto& entry) { return !fs::exists(entry.first); });
  Json json = Json::object();
  for (const auto& [path, e] : entries_) {
    json[path] = {{"device", e.device},          {"inode", e.inode},          {"size", e.size},
                  {"modified_ns", e.modifiedNs}, {"changed_ns", e.changedNs}, {"sha256", e.digest}};
  }
  try {
    writeFileAtomically(memo_, json.dump(-1, ' ', false, Json::error_handler_t::replace));
    changed_ = false;
  } catch (const Error& e) {
    log::debug("{}", e.what());
  }
}

std::string sampledFingerprint(const fs::path& directory) {
  constexpr uint64_t kWholeBytes = uint64_t{4} << 20;
  constexpr uint64_t kPieces = 64;
  constexpr uint64_t kPieceBytes = uint64_t{16} << 10;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Sha256 hash;
  for (const auto& file : files) {
    const auto size = static_cast<uint64_t>(statusOf(file).st_size);
    hash.update(fmt::format("{} {}\n", file.filename().string(), size));
    if (size == 0) continue;
    const MappedFile mapped(file);
    if (size <= kWholeBytes) {
      hash.update(mapped.bytes());
      continue;
    }
    const uint64_t stride = (size - kPieceBytes) / (kPieces - 1);
    for (uint64_t i = 0; i < kPieces; ++i) hash.update(mapped.bytes().subspan(i * stride, kPieceBytes));
  }
  return hash.hex();
}

}  // namespace chorus::server
