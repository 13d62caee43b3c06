// Where an adapter's weights come from: a PEFT directory, or the tensors of a request (spec S2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "chorus/types.h"
#include "models/adapter_parts.h"
#include "runtime/adapter_cache/adapter_size.h"

namespace chorus {

// Immutable once made. Requests that wait for it keep it alive; a directory is also kept by its registration.
struct AdapterSource {
  std::filesystem::path directory;  // empty: the tensors
  std::optional<executor::Tensor> weights;
  std::optional<executor::Tensor> config;
  std::string content_hash;  // equal hashes are one adapter
  int64_t bytes = 0;     // what it will take packed: exact for a directory; of tensors, which may be padded, at most
  int64_t elements = 0;  // AdapterSize::elements, likewise

  bool reloadable() const { return !directory.empty(); }
  AdapterSize size() const { return {bytes, elements}; }
};

// Reads, checks and packs. Called on a loader thread; throws Error.
using LoadAdapter = std::function<std::shared_ptr<const PreparedAdapter>(const AdapterSource& source)>;

}  // namespace chorus
