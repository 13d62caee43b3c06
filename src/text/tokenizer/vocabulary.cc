#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/utf8_json.h"

namespace chorus {
namespace {
constexpr int32_t kMaxId = 1 << 21;
constexpr size_t kFreeGaps = 4096;
}  // namespace

Vocabulary Vocabulary::fromModel(const Json& model, const std::string& source) {
  const auto vocab = model.find("vocab");
  if (vocab == model.end() || !vocab->is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'vocab' must be an object of tokens and ids", source);
  }
  const auto& entries = vocab->get_ref<const Json::object_t&>();
  int32_t end = 0;
  for (const auto& [token, id] : entries) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxId) {
      fail(ErrorCode::kCorrupt, "{}: an id in 'vocab' is not an integer from 0 to {}", source, kMaxId - 1);
    }
    if (token.size() > kMaxTokenBytes) {
      fail(ErrorCode::kUnsupported, "{}: a token has {} bytes; the limit is {}", source, token.size(), kMaxTokenBytes);
    }
    end = std::max(end, id.get<int32_t>() + 1);
  }
  if (static_cast<size_t>(end) > 2 * entries.size() + kFreeGaps) {
    fail(ErrorCode::kUnsupported, "{}: 'vocab' has {} tokens but ids up to {}: too many gaps", source, entries.size(),
         end - 1);
  }
  Vocabulary out;
  out.texts_.resize(static_cast<size_t>(end));
  out.present_.resize(static_cast<size_t>(end));
  out.size_ = entries.size();
  out.ids_.reserve(entries.size());
  for (const auto& [token, id] : entries) {
    const auto index = id.get<size_t>();
    if (out.present_[index]) fail(ErrorCode::kCorrupt, "{}: two tokens in 'vocab' have the id {}", source, index);
    out.present_[index] = true;
    out.texts_[index] = checkedText(token, "vocab", source);
    out.ids_.emplace(out.texts_[index].bytes(), static_cast<int32_t>(index));
  }
  return out;
}

Vocabulary Vocabulary::fromList(std::vector<Utf8Text> texts) {
  Vocabulary out;
  out.texts_ = std::move(texts);
  out.present_.assign(out.texts_.size(), true);
  out.size_ = out.texts_.size();
  out.ids_.reserve(out.texts_.size());
  for (size_t i = 0; i < out.texts_.size(); ++i) out.ids_[out.texts_[i].bytes()] = static_cast<int32_t>(i);
  return out;
}

size_t Vocabulary::memoryBytes() const {
  constexpr size_t kMapNode = 48;  // key, id, hash, link and the allocator's share
  size_t bytes = texts_.capacity() * sizeof(Utf8Text) + present_.size() / 8 + ids_.bucket_count() * sizeof(void*) +
                 ids_.size() * kMapNode;
  for (const Utf8Text& text : texts_) {
    if (text.size() > 15) bytes += text.size() + 16;  // shorter ones are stored in the string object
  }
  return bytes;
}

}  // namespace chorus
