#include "server/model/file_digests.h"

#include <algorithm>
#include <chrono>
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

std::string keyOf(const fs::path& file) { return fs::absolute(file).lexically_normal().string(); }

FileStamp stampOfFile(const fs::path& file) {
  const auto stamp = stampOf(file);
  if (!stamp) fail(ErrorCode::kNotFound, "{}: file not found", file.string());
  return *stamp;
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
      entries_[path] = {{e.at("device"), e.at("inode"), e.at("size"), e.at("modified_ns"), e.at("changed_ns")},
                        e.at("sha256")};
    }
  } catch (const std::exception& e) {
    log::debug("{}: ignored: {}", memo_.string(), e.what());
    entries_.clear();
  }
}

void FileDigests::remember(const fs::path& file, const std::string& digest) {
  entries_[keyOf(file)] = {stampOfFile(file), digest};
  changed_ = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

std::string FileDigests::of(const fs::path& file) {
  const std::string key = keyOf(file);
  const FileStamp stamp = stampOfFile(file);
  if (const auto known = entries_.find(key); known != entries_.end() && known->second.stamp == stamp) {
    return known->second.digest;
  }
  const int64_t age = ageNs(stamp);
  std::string digest = digestOf(file, stamp.size);
  // A file that changed just now may change again within the same tick of the file system's clock, with the same stamp.
  constexpr int64_t kSettledNs = 2'000'000'000;
  if (age > kSettledNs) {
    entries_[key] = {stamp, digest};
    changed_ = true;
  } else {
    entries_.erase(key);
  }
  return digest;
}

void FileDigests::save() {
  if (!changed_) return;
  std::erase_if(entries_, [](const auto& entry) { return !fs::exists(entry.first); });
  Json json = Json::object();
  for (const auto& [path, e] : entries_) {
    const FileStamp& s = e.stamp;
    json[path] = {{"device", s.device},           {"inode", s.inode},           {"size", s.size},
                  {"modified_ns", s.modified_ns}, {"changed_ns", s.changed_ns}, {"sha256", e.digest}};
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
    const auto size = stampOfFile(file).size;
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
