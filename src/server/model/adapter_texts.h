// The tokenizers and templates of adapters: an adapter whose directory has none of its own uses the base model's.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/directory.h"
#include "base/memory_budget.h"
#include "base/work_meter.h"
#include "text/text_codec.h"

namespace chorus::server {

struct AdapterTextOptions {
  // False: an adapter with tokenizer or template files of its own is refused, unless they equal the base model's.
  bool trusted = true;
  // Limit on the memory of the tokenizers and templates of all adapters together, including those that are being read.
  // The tokenizer and templates of one adapter may keep at most a quarter of it.
  size_t memory_bytes = size_t{1} << 30;
};

// Thread-safe.
class AdapterTexts {
 public:
  // base was loaded from base_directory. vocabSize: number of tokens for which the engine has embeddings.
  AdapterTexts(std::shared_ptr<const TextCodec> base, std::filesystem::path base_directory, int32_t vocabSize,
               const AdapterTextOptions& options = {});

  // Loads the text of an adapter. Equal files are loaded once, and their memory is returned with the last reference to
  // the text. Throws Error for a tokenizer of more tokens than the engine has, for files that are too large
  // (kMaxFileBytes, kMaxTotalBytes) or not trusted, kTooLarge if it takes more memory than one adapter may, kExhausted
  // if other adapters have taken the memory, and with the code of
  // WorkStopped if the meter stops it. Without `parse`, returns null instead of parsing files: if they are neither the
  // base model's nor those of a text in memory.
  static constexpr size_t kMaxFileBytes = size_t{32} << 20;
  static constexpr size_t kMaxTotalBytes = size_t{64} << 20;
  std::shared_ptr<const TextCodec> load(const Directory& adapterDirectory, WorkMeter& meter, bool parse = true);

  // Bytes charged for all texts that are in memory.
  size_t used() const { return budget_->used(); }
  size_t limit() const { return budget_->limit(); }

 private:
  std::shared_ptr<const TextCodec> base_;
  std::filesystem::path base_directory_;
  std::string base_digest_;
  int32_t vocab_size_;
  bool trusted_;
  std::shared_ptr<MemoryBudget> budget_;  // codecs that requests hold may outlive this object
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const TextCodec>> loaded_;  // key: digest of the files
};

}  // namespace chorus::server
