// Where an adapter's weights come from: a PEFT directory, or the tensors of a request (spec S2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "chorus/tensor.h"
#include "models/adapter_parts.h"

namespace chorus {

// Immutable once made. Requests that wait for it keep it alive; a directory is also kept by its registration.
struct AdapterSource {
  std::filesystem::path directory;  // empty: the tensors
  std::optional<executor::Tensor> weights;
  std::optional<executor::Tensor> config;
  std::string content_hash;      // when it was registered; equal hashes are one adapter
  int64_t newest_change_ns = 0;  // of a directory's files before they were read (peft_files.h)
  int64_t bytes = 0;  // what it will take packed: exact for a directory; of tensors, which may be padded, at most

  // A directory's, where set: called on a loader thread with the hash of the content that was found instead of
  // content_hash, before that is packed. Throws Error to refuse it.
  std::function<void(const std::string& content_hash)> on_changed;

  bool reloadable() const { return !directory.empty(); }
};

// Reads, checks and packs. Called on a loader thread; throws Error.
using LoadAdapter = std::function<std::shared_ptr<const PreparedAdapter>(const AdapterSource& source)>;

}  // namespace chorus
