// Files that somebody may rewrite meanwhile, read into memory as one state of all of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/directory.h"
#include "base/error.h"
#include "base/file.h"

namespace chorus {

// A file's bytes in memory of their own: whatever becomes of the file, they stay. (A map's owner dies by SIGBUS when
// the file is cut.)
class FileContents {
 public:
  FileContents(AlignedBuffer memory, size_t size) : memory_(std::move(memory)), size_(size) {}
  ~FileContents();
  FileContents(const FileContents&) = delete;
  FileContents& operator=(const FileContents&) = delete;
  std::span<const std::byte> bytes() const { return {memory_.as<const std::byte>(), size_}; }
  std::string_view text() const { return {memory_.as<const char>(), size_}; }

 private:
  AlignedBuffer memory_;
  size_t size_;
};

// Reads files of one directory and remembers the state that each was seen in. Used by one thread, once.
class FileReader {
 public:
  explicit FileReader(std::shared_ptr<const Directory> directory) : directory_(std::move(directory)) {}

  // Throws Error: those of Directory::openFile; kCorrupt when the file is larger than max_bytes. A file that changed
  // within the last tick of the file system's clock is waited for, so that a further change shows.
  std::shared_ptr<const FileContents> read(const std::string& name, size_t max_bytes);
  struct Head {
    std::shared_ptr<const FileContents> contents;
    size_t file_size = 0;
  };
  // The same of the file's first bytes alone: `bytes` of them, fewer where the file has fewer.
  Head readHead(const std::string& name, size_t bytes, size_t max_file_bytes);
  // Whether something is there, be it only a link that leads nowhere.
  bool exists(const std::string& name);
  // Whether everything is still as it was seen: then all that was read is of one state.
  bool unchanged() const;
  // The states of all that is there, in the order in which it was seen.
  std::vector<FileStamp> stamps() const;
  // When the youngest of what is there last changed (FileStamp::changed_ns); 0 when nothing was seen.
  int64_t newestChangeNs() const;
  const Directory& directory() const { return *directory_; }

 private:
  using Seen = std::pair<std::string, std::optional<FileStamp>>;
  const std::optional<FileStamp>& see(const std::string& name);
  std::shared_ptr<const Directory> directory_;
  std::vector<Seen> seen_;
  bool changed_ = false;  // a file that was opened had another state than the one that was seen
};

// read(FileReader&)'s result, once nothing has changed while it ran, however it ended. Each try opens the directory
// anew. Throws what open and read throw, and kConflict, naming the directory, when its files change faster than they
// can be read.
template <typename F>
auto readUnchanged(const OpenDirectory& open, F&& read) {
  constexpr int kTries = 3;
  std::string what;
  for (int i = 0; i < kTries; ++i) {
    FileReader files(open());
    try {
      auto result = read(files);
      if (files.unchanged()) return result;
    } catch (const std::exception&) {
      if (files.unchanged()) throw;
    }
    what = files.directory().path().string();
  }
  fail(ErrorCode::kConflict,
       "{}: its files change while they are read; write new ones elsewhere and rename the directory into place", what);
}

// Programs write a directory's files one after another: they are of one writing when none of them has changed for a
// second. How long until then, 0 when it is so. newest_change_ns: as FileReader::newestChangeNs.
std::chrono::nanoseconds quietIn(int64_t newest_change_ns);

}  // namespace chorus
