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
  // memo: the file that keeps the digests between runs. A missing or unreadable one counts as empty.
  explicit FileDigests(std::filesystem::path memo);

  // Returns 64 hexadecimal digits. Throws Error when the file can't be read.
  std::string of(const std::filesystem::path& file);
  // Stores the digest of a file that this process has written and that nobody else writes, although the file is too new
  // for of() to store it. Waits 50 ms, longer than a clock tick of the file system, so that any later edit changes the
  // file's stamp.
  void remember(const std::filesystem::path& file, const std::string& digest);
  // Writes the digests to the memo file. A failure is not an error: it only costs time later. The last writer wins.
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

// Identifies the files of an engine at a low cost for any size. Hashes files of up to 4 MiB completely, and of larger
// ones the size and 64 pieces spread over them. Sufficient to show clients that a version differs, but not as a cache
// key.
std::string sampledFingerprint(const std::filesystem::path& directory);

}  // namespace chorus::server
