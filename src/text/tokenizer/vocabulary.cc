#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "base/error.h"

namespace chorus {
namespace {
constexpr int32_t kMaxId = 1 << 21;
}

Vocabulary Vocabulary::fromObject(const Json& json, const std::string& source) {
  if (!json.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'vocab' must be an object of tokens and ids", source);
  }
  int32_t end = 0;
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxId) {
      fail(ErrorCode::kCorrupt, "{}: an id in 'vocab' is not an integer from 0 to {}", source, kMaxId - 1);
    }
    end = std::max(end, id.get<int32_t>() + 1);
  }
  Vocabulary out;
  out.texts_.resize(static_cast<size_t>(end));
  out.present_.resize(static_cast<size_t>(end));
  out.size_ = json.size();
  out.ids_.reserve(json.size());
  for (const auto& [token, id] : json.items()) {
    const auto index = id.get<size_t>();
    if (out.present_[index]) fail(ErrorCode::kCorrupt, "{}: two tokens in 'vocab' have the id {}", source, index);
    out.present_[index] = true;
    out.texts_[index] = token;
    out.ids_.emplace(out.texts_[index], static_cast<int32_t>(index));
  }
  return out;
}

Vocabulary Vocabulary::fromList(std::vector<std::string> texts) {
  Vocabulary out;
  out.texts_ = std::move(texts);
  out.present_.assign(out.texts_.size(), true);
  out.size_ = out.texts_.size();
  out.ids_.reserve(out.texts_.size());
  for (size_t i = 0; i < out.texts_.size(); ++i) out.ids_[out.texts_[i]] = static_cast<int32_t>(i);
  return out;
}

}  // namespace chorus
