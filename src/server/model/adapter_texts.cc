#include "server/model/adapter_texts.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus::server {

AdapterTexts::AdapterTexts(std::shared_ptr<const TextCodec> base, std::filesystem::path baseDirectory,
                           int32_t vocabSize)
    : base_(std::move(base)),
      baseDirectory_(std::move(baseDirectory)),
      baseDigest_(tokenizerFilesDigest(baseDirectory_)),
      vocabSize_(vocabSize) {}

std::shared_ptr<const TextCodec> AdapterTexts::load(const std::filesystem::path& adapterDirectory) {
  const std::string digest = tokenizerFilesDigest(adapterDirectory);
  if (digest.empty() || digest == baseDigest_) return base_;
  std::erase_if(loaded_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto it = loaded_.find(digest); it != loaded_.end()) {
    if (auto text = it->second.lock()) return text;
  }
  auto text = loadTextCodec(adapterDirectory, baseDirectory_);
  if (text->vocabSize() > std::max(vocabSize_, base_->vocabSize())) {
    fail(ErrorCode::kUnsupported,
         "{}: its tokenizer has {} tokens, but the engine has embeddings for {}; take the tokens "
         "that were added out of the adapter's tokenizer files",
         adapterDirectory.string(), text->vocabSize(), vocabSize_);
  }
  loaded_[digest] = text;
  return text;
}

}  // namespace chorus::server
