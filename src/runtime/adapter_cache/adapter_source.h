// Where an adapter's weights come from: a PEFT directory, or the tensors of a request (spec S2).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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

// Immutable once made. Requests that wait for it keep it alive; a directory is also kept by its registration.
struct AdapterSource {
  std::filesystem::path directory;  // for error lines; empty: the tensors
  OpenDirectory open;               // the directory's files are read through this alone
  std::optional<executor::Tensor> weights;
  std::optional<executor::Tensor> config;
  std::string content_hash;       // when it was registered; equal hashes are one adapter
  std::vector<FileStamp> stamps;  // of a directory's files as they were registered (PeftFiles::stamps)
  int64_t newest_change_ns = 0;   // of a directory's files before they were read (peft_files.h)
  int64_t bytes = 0;     // what it will take packed: exact for a directory; of tensors, which may be padded, at most
  int64_t elements = 0;  // AdapterSize::elements, likewise
  // A directory whose registration took long: its loads wait for each other, not others for them.
  bool heavy = false;

  OnAdapterContent on_content;    // of a directory; may be null
  std::function<void()> on_gone;  // called by a loader thread that finds no such files; may be null

  bool reloadable() const { return !directory.empty(); }
  AdapterSize size() const { return {bytes, elements}; }
};

// Thrown by a LoadAdapter whose files were written just now, so that they may not all be there: the loader tries again
// after `wait`, and loads others meanwhile.
struct AdapterUnsettled {
  std::chrono::nanoseconds wait;
};

// Reads, checks and packs. Called on a loader thread; throws Error or AdapterUnsettled.
using LoadAdapter = std::function<std::shared_ptr<const PreparedAdapter>(const AdapterSource& source)>;

}  // namespace chorus
