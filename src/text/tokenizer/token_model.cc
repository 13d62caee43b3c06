#include "text/tokenizer/token_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/unigram_model.h"
#include "text/unicode.h"

namespace chorus {

std::unique_ptr<const TokenModel> makeTokenModel(const Json& json, const std::string& source) {
  const auto vocab = json.find("vocab");
  const bool list = vocab != json.end() && vocab->is_array();
  const auto type = jsonGetOr<std::string>(json, "type", list ? "Unigram" : "BPE", source);
  if (type == "BPE") return std::make_unique<BpeModel>(json, source);
  if (type == "Unigram") return std::make_unique<UnigramModel>(json, source);
  fail(ErrorCode::kUnsupported, "{}: the model '{}' is not supported; BPE and Unigram are", source, printable(type));
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
