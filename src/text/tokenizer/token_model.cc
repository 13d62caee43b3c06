#include "text/tokenizer/token_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/unigram_model.h"
#include "text/tokenizer/word_models.h"
#include "text/unicode.h"

namespace chorus {

std::string tokenModelType(const Json& json, const std::string& source) {
  const auto vocab = json.find("vocab");
  const bool list = vocab != json.end() && vocab->is_array();
  const char* by_members = list                                        ? "Unigram"
                           : json.contains("merges")                   ? "BPE"
                           : json.contains("max_input_chars_per_word") ? "WordPiece"
                                                                       : "WordLevel";
  return jsonGetOr<std::string>(json, "type", by_members, source);
}

std::unique_ptr<const TokenModel> makeTokenModel(const Json& json, const std::string& source, WorkMeter& meter) {
  const std::string type = tokenModelType(json, source);
  if (type == "BPE" || type == kRankedModel) return std::make_unique<BpeModel>(json, source, meter);
  if (type == "Unigram") return std::make_unique<UnigramModel>(json, source);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(json, source);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(json, source);
  fail(ErrorCode::kUnsupported, "{}: the model '{}' is not supported; BPE, Unigram, WordPiece and WordLevel are",
       source, printable(type));
}

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) ids[byte] = vocabulary.tokenId(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

bool ByteTokens::append(std::string_view text, std::vector<int32_t>& out) const {
  const auto idOf = [&](char c) { return ids[static_cast<unsigned char>(c)]; };
  if (!std::all_of(text.begin(), text.end(), [&](char c) { return idOf(c) >= 0; })) return false;
  for (const char c : text) out.push_back(idOf(c));
  return true;
}

}  // namespace chorus
