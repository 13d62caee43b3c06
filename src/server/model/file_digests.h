// SHA-256 of whole files, remembered between runs: a file whose stamp (FileStamp) did not change is not read again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"

namespace chorus::server {

class FileDigests {
 public:
  // memo need not exist; an unreadable one is as good as none.
  explicit FileDigests(std::filesystem::path memo);

  // 64 hexadecimal digits. Throws Error when the file can't be read.
  std::string of(const std::filesystem::path& file);
  // Keeps the digest of a file that this process has written and that nobody else writes, so that even a file this
  // young need not be read again. An edit more than a clock tick (50 ms at most) after now is still noticed.
  void remember(const std::filesystem::path& file, const std::string& digest);
  // Writes what was learned; a failure only costs time later. The newest writer wins.
  void save();

 private:
  struct Entry {
    FileStamp stamp;
    std::string digest;
  };

  std::filesystem::path memo_;
  std::map<std::string, Entry> entries_;
  bool changed_ = false;
};

// An identity of an engine's files that is cheap for any size: files of up to 4 MiB whole, of larger
// ones the size and 64 pieces spread over them. Good enough to tell versions apart for clients, not for a cache key.
std::string sampledFingerprint(const std::filesystem::path& directory);

}  // namespace chorus::server
