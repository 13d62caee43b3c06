// Keeps the adapters that clients upload as directories on disk, so that they are read like all others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/directory.h"

namespace chorus::server {

// Thread-safe.
class UploadSpool {
 public:
  // One uploaded adapter: a directory with PEFT's two files, which is removed when the last owner lets go of it. It may
  // outlive the spool.
  struct Upload {
    std::shared_ptr<const Directory> parent;  // the directory is `name` beneath this one
    std::string name;
    std::shared_ptr<const void> keep;  // while it is held, the directory stays
    uint64_t bytes = 0;                // what it takes of the limit
  };

  // path: a directory, which is made if there is none. The uploads are in a directory of their own beneath it, which
  // only this process uses; those that ended servers have left are removed. max_bytes: limit on all uploads together.
  // Throws Error that names --lora_upload_dir.
  UploadSpool(const std::filesystem::path& path, uint64_t max_bytes);

  // Writes an adapter. Throws Error: kExhausted if the limit would be exceeded or the disk is full. Its text contains
  // no path.
  Upload store(std::string_view config, std::string_view weights);
  uint64_t usedBytes() const;
  // Bytes that other uploads must give back before one of so many bytes can be stored.
  uint64_t missingFor(uint64_t bytes) const;

 private:
  struct Space;
  std::shared_ptr<Space> space_;
};

}  // namespace chorus::server
