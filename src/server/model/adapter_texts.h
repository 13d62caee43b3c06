// The tokenizers and templates of adapters: an adapter whose directory has none of its own speaks as the base model.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "server/model/text_codec.h"

namespace chorus::server {

class AdapterTexts {
 public:
  // base was loaded from baseDirectory; vocabSize: tokens that the engine has embeddings for.
  AdapterTexts(std::shared_ptr<const TextCodec> base, std::filesystem::path baseDirectory, int32_t vocabSize);

  // Equal files are loaded once and kept for as long as somebody holds them. Throws Error, also for a tokenizer with
  // more tokens than the engine. One caller at a time.
  std::shared_ptr<const TextCodec> load(const std::filesystem::path& adapterDirectory);

 private:
  std::shared_ptr<const TextCodec> base_;
  std::filesystem::path baseDirectory_;
  std::string baseDigest_;
  int32_t vocabSize_;
  std::map<std::string, std::weak_ptr<const TextCodec>> loaded_;  // by the digest of the files
};

}  // namespace chorus::server
