// Reads several files of one directory into memory as one consistent state, although another process may rewrite them
// during the read.
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
#include "base/file_memory.h"
#include "base/partial_bytes.h"
#include "base/work_meter.h"

namespace chorus {

class BackgroundThrottle;

// A copy of a file's bytes, independent of later changes to the file. (A process that maps the file instead gets SIGBUS
// when the file is truncated.)
class FileContents {
 public:
  // pool: gets the memory back at the end, and then the reservation ends; null: the memory is freed.
  FileContents(AlignedBuffer memory, size_t size, std::shared_ptr<FileMemory> pool,
               FileMemory::Reservation reservation = {})
      : memory_(std::move(memory)), size_(size), pool_(std::move(pool)), reservation_(std::move(reservation)) {}
  ~FileContents() {
    if (pool_ != nullptr) pool_->give(std::move(memory_));
  }
  FileContents(const FileContents&) = delete;
  FileContents& operator=(const FileContents&) = delete;
  std::span<const std::byte> bytes() const { return {memory_.as<const std::byte>(), size_}; }
  std::string_view text() const { return {memory_.as<const char>(), size_}; }

 private:
  AlignedBuffer memory_;
  size_t size_;
  std::shared_ptr<FileMemory> pool_;
  FileMemory::Reservation reservation_;
};

// Reads files of one directory and records the stamp of each. Not thread-safe; for a single read, not for reuse.
class FileReader {
 public:
  // memory: limits the memory of the files that read() and readHead() return, and keeps it for later files; readParts()
  // does not use it. Null: there is no limit, and the memory is allocated and freed. throttle: is
  // charged for the bytes that are read; may be null.
  explicit FileReader(std::shared_ptr<const Directory> directory, std::shared_ptr<FileMemory> memory = nullptr,
                      BackgroundThrottle* throttle = nullptr)
      : directory_(std::move(directory)), memory_(std::move(memory)), throttle_(throttle) {}

  // Reads a whole file. If it changed within the last tick of the file system's clock, first sleeps until the tick is
  // over, so that any further change gets a different stamp. Throws the Errors of Directory::openFile, kCorrupt when
  // the file is larger than max_bytes, kExhausted when there is too little memory for it, those of FileMemory::reserve.
  // also: bytes that are reserved with the file's, for as long as its contents exist, because the caller will allocate
  // them.
  std::shared_ptr<const FileContents> read(const std::string& name, size_t max_bytes, size_t also = 0);
  struct Head {
    std::shared_ptr<const FileContents> contents;
    size_t file_size = 0;
  };
  // Like read(), but reads only the first `bytes` bytes, or the whole file when it is smaller.
  Head readHead(const std::string& name, size_t bytes, size_t max_file_bytes, size_t also = 0);
  // Calls parse(const PartialBytes&) on a file of which only the parts that it asks for are read, and returns its
  // result. The bytes are valid during the call. Errors: those of read(), what `parse` throws, and kUnsupported when it
  // asks for more than max_parts_bytes bytes in all.
  template <typename Parse>
  auto readParts(const std::string& name, size_t max_file_bytes, size_t max_parts_bytes, Parse&& parse) {
    const Opened file = open(name, max_file_bytes);
    const AlignedBuffer memory(file.size, AlignedBuffer::Pages::kSmall);
    PartsReader parts(file, memory, max_parts_bytes, throttle_);
    return parse(
        PartialBytes({memory.as<const std::byte>(), file.size}, [&](size_t at, size_t size) { parts.need(at, size); }));
  }
  // Whether an entry has this name. A dangling link counts.
  bool exists(const std::string& name);
  // True when every recorded stamp is still current; all contents then belong to one state of the directory.
  bool unchanged() const;
  // The latest FileStamp::changed_ns of all recorded files that exist; 0 when there are none.
  int64_t newestChangeNs() const;
  // Whether the memory of files is limited.
  bool reserves() const { return memory_ != nullptr; }
  const Directory& directory() const { return *directory_; }
  // The throttle that reading charges; null if there is none.
  BackgroundThrottle* throttle() const { return throttle_; }

 private:
  struct Opened {
    std::string path;
    Descriptor descriptor;
    size_t size = 0;
  };
  // Reads pieces of an open file into `memory`, which has the file's size, each piece once.
  class PartsReader {
   public:
    PartsReader(const Opened& file, const AlignedBuffer& memory, size_t max_bytes, BackgroundThrottle* throttle);
    void need(size_t at, size_t size);

   private:
    const Opened& file_;
    const AlignedBuffer& memory_;
    size_t max_bytes_;
    BackgroundThrottle* throttle_;
    size_t bytes_ = 0;        // read so far
    std::vector<bool> read_;  // one for each piece
  };
  Opened open(const std::string& name, size_t max_file_bytes);
  using Seen = std::pair<std::string, std::optional<FileStamp>>;
  const std::optional<FileStamp>& see(const std::string& name);
  std::shared_ptr<const Directory> directory_;
  std::shared_ptr<FileMemory> memory_;
  BackgroundThrottle* throttle_;
  std::vector<Seen> seen_;
  bool changed_ = false;  // the stamp of an opened file differed from the recorded one
};

// Calls read(FileReader&) until no file changed during the call (at most three tries, each opens the directory again).
// Then returns its result, or rethrows the exception that it ended with; WorkStopped ends the tries. Throws what `open`
// throws, and kConflict, naming the directory, when files changed during every try. memory, throttle: see FileReader.
template <typename F>
auto readUnchanged(const OpenDirectory& open, F&& read, const std::shared_ptr<FileMemory>& memory = nullptr,
                   BackgroundThrottle* throttle = nullptr) {
  constexpr int kTries = 3;
  std::string what;
  for (int i = 0; i < kTries; ++i) {
    FileReader files(open(), memory, throttle);
    try {
      auto result = read(files);
      if (files.unchanged()) return result;
    } catch (const WorkStopped&) {
      throw;
    } catch (const std::exception&) {
      if (files.unchanged()) throw;
    }
    what = files.directory().path().string();
  }
  fail(ErrorCode::kConflict,
       "{}: its files change while they are read; write new ones elsewhere and rename the directory into place", what);
}

// Time until a directory counts as completely written; 0 when it does. Programs write a directory's files one after
// another, so it counts as complete once no file has changed for a second. newest_change_ns: see newestChangeNs().
std::chrono::nanoseconds quietIn(int64_t newest_change_ns);

}  // namespace chorus
