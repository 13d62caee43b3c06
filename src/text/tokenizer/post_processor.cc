#include "text/tokenizer/post_processor.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxIds = 4096;

int32_t readId(const Json& json, const std::string& source) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
    fail(ErrorCode::kCorrupt, "{}: a token id must be an integer from 0", source);
  }
  return json.get<int32_t>();
}

void checkCount(const SpecialTokens& tokens, const std::string& source) {
  if (tokens.before.size() + tokens.after.size() > kMaxIds) {
    fail(ErrorCode::kUnsupported, "{}: more than {} special tokens around a text", source, kMaxIds);
  }
}

SpecialTokens readTemplate(const Json& json, const std::string& source) {
  const auto single = json.find("single"), special = json.find("special_tokens");
  const bool has_tokens = special != json.end();
  if (single == json.end() || !single->is_array() || (has_tokens && !special->is_object())) {
    fail(ErrorCode::kUnsupported, "{}: 'single' must be a list and 'special_tokens' an object", source);
  }
  SpecialTokens tokens;
  int texts = 0;
  for (const Json& item : *single) {
    if (item.is_object() && item.contains("Sequence")) {
      const auto id = jsonGetOr<std::string>(item["Sequence"], "id", "A", source);
      if (id != "A") fail(ErrorCode::kUnsupported, "{}: 'single' uses the sequence '{}'", source, printable(id));
      ++texts;
    } else if (item.is_object() && item.contains("SpecialToken")) {
      const auto name = jsonGet<std::string>(item["SpecialToken"], "id", source);
      const auto token = has_tokens ? special->find(name) : json.end();
      const bool known = has_tokens && token != special->end();
      if (!known || !token->is_object() || !token->contains("ids") || !(*token)["ids"].is_array()) {
        fail(ErrorCode::kCorrupt, "{}: 'special_tokens' has no ids for a token of 'single'", source);
      }
      for (const Json& id : (*token)["ids"]) {
        (texts == 0 ? tokens.before : tokens.after).push_back(readId(id, source));
        checkCount(tokens, source);
      }
    } else {
      fail(ErrorCode::kUnsupported, "{}: an item of 'single' is neither Sequence nor SpecialToken", source);
    }
  }
  if (texts != 1) fail(ErrorCode::kUnsupported, "{}: 'single' must contain the sequence exactly once", source);
  return tokens;
}

// Returns the id of a pair such as ["</s>", 2] in a BertProcessing or RobertaProcessing.
int32_t readPair(const Json& json, const char* key, const std::string& source) {
  const auto pair = json.find(key);
  if (pair == json.end() || !pair->is_array() || pair->size() != 2) {
    fail(ErrorCode::kCorrupt, "{}: '{}' must be [token, id]", source, key);
  }
  return readId((*pair)[1], source);
}

// Puts the ids of outer around those of inner, which stay next to the text.
SpecialTokens around(SpecialTokens inner, SpecialTokens outer) {
  outer.before.insert(outer.before.end(), inner.before.begin(), inner.before.end());
  inner.after.insert(inner.after.end(), outer.after.begin(), outer.after.end());
  return {std::move(outer.before), std::move(inner.after)};
}
}  // namespace

SpecialTokens readPostProcessor(const Json& json, const std::string& source) {
  if (json.is_null()) return {};
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return readTemplate(json, here);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{readPair(json, "cls", here)}, {readPair(json, "sep", here)}};
  }
  if (type == "Sequence") {
    const auto list = json.find("processors");
    if (list == json.end() || !list->is_array()) {
      fail(ErrorCode::kInvalidArgument, "{}: 'processors' must be a list", here);
    }
    SpecialTokens tokens;
    for (const Json& part : *list) {
      if (part.is_null()) fail(ErrorCode::kInvalidArgument, "{}: 'processors' holds null", here);
      tokens = around(std::move(tokens), readPostProcessor(part, here));
      checkCount(tokens, here);
    }
    return tokens;
  }
  fail(ErrorCode::kUnsupported, "{}: the post-processor '{}' is not supported", source, printable(type));
}

}  // namespace chorus
