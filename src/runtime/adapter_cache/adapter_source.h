// Where an adapter's weights come from: a PEFT directory, or the tensors of a request (spec S2).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/file.h"
#include "chorus/tensor.h"
#include "models/adapter_parts.h"
#include "runtime/adapter_cache/adapter_size.h"

namespace chorus {

// Told the hash of a directory's content when it is registered, and by a loader thread each time that other content is
// found there than was registered, before that is used. Throws Error to refuse it.
using OnAdapterContent = std::function<void(const std::string& content_hash)>;

// What a loader found in a directory that was registered by its headers. Thread-safe.
class LearnedContent {
 public:
  struct Content {
    std::vector<FileStamp> stamps;  // PeftFiles::stamps
    std::string hash;               // empty: nothing is known yet
  };
  Content get() const {
    const std::lock_guard lock(mutex_);
    return content_;
  }
  void set(Content content) {
    const std::lock_guard lock(mutex_);
    content_ = std::move(content);
  }

 private:
  mutable std::mutex mutex_;
  Content content_;
};

// Immutable once made, but for what `learned` points to. Requests that wait for it keep it alive; a directory is also
// kept by its registration.
struct AdapterSource {
  std::filesystem::path directory;  // for error lines; empty: the tensors
  OpenDirectory open;               // the directory's files are read through this alone
  std::optional<executor::Tensor> weights;
  std::optional<executor::Tensor> config;
  std::string content_hash;       // when it was registered; equal hashes are one adapter; empty with `learned`
  std::vector<FileStamp> stamps;  // of a directory's files as they were registered (PeftFiles::stamps)
  int64_t newest_change_ns = 0;   // of a directory's files before they were read (peft_files.h)
  int64_t bytes = 0;              // what it will take packed
  int64_t elements = 0;           // AdapterSize::elements
  // Of a directory: both are upper bounds, because values that were not read may be the base's own. Of tensors they
  // always are, because those may be padded.
  bool size_at_most = false;
  // Set when the registration left the values unread (executor::AdapterFiles::deferContent).
  std::shared_ptr<LearnedContent> learned;
  // A directory whose registration took long: its loads wait for each other, not others for them.
  bool heavy = false;

  OnAdapterContent on_content;    // of a directory; may be null
  std::function<void()> on_gone;  // called by a loader thread that finds no such files; may be null
  // Called by a loader thread that refuses the files although nothing was ever loaded of them; may be null.
  std::function<void(const std::string& reason)> on_refused;

  bool reloadable() const { return !directory.empty(); }
  AdapterSize size() const { return {bytes, elements}; }
  bool sizeIsExact() const { return reloadable() && !size_at_most; }
};

// Thrown by a LoadAdapter whose files were written just now, so that they may not all be there: the loader tries again
// after `wait`, and loads others meanwhile.
struct AdapterUnsettled {
  std::chrono::nanoseconds wait;
};

// Reads, checks and packs. Called on a loader thread; throws Error or AdapterUnsettled.
using LoadAdapter = std::function<std::shared_ptr<const PreparedAdapter>(const AdapterSource& source)>;

}  // namespace chorus
