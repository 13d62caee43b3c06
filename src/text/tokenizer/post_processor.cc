#include "text/tokenizer/post_processor.h"

#include <limits>
#include <optional>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxTemplateIds = 4096;

int32_t readId(const Json& json, const std::string& source) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
    fail(ErrorCode::kCorrupt, "{}: a token id must be an integer from 0", source);
  }
  return json.get<int32_t>();
}

// Ids around the text: before it, and after it when it occurs at all.
class Template final : public PostProcessor {
 public:
  // An item without value is the text.
  explicit Template(std::vector<std::optional<int32_t>> items) : items_(std::move(items)) {}
  void addSpecialTokens(std::vector<int32_t>& ids) const override {
    std::vector<int32_t> out;
    out.reserve(ids.size() + items_.size());
    for (const auto& item : items_) {
      if (item)
        out.push_back(*item);
      else
        out.insert(out.end(), ids.begin(), ids.end());
    }
    ids = std::move(out);
  }

 private:
  std::vector<std::optional<int32_t>> items_;
};

class SequencePostProcessor final : public PostProcessor {
 public:
  explicit SequencePostProcessor(std::vector<std::unique_ptr<const PostProcessor>> parts) : parts_(std::move(parts)) {}
  void addSpecialTokens(std::vector<int32_t>& ids) const override {
    for (const auto& part : parts_) part->addSpecialTokens(ids);
  }

 private:
  std::vector<std::unique_ptr<const PostProcessor>> parts_;
};

std::unique_ptr<const PostProcessor> makeTemplate(const Json& json, const std::string& source) {
  const Json single = json.value("single", Json());
  const Json special = json.value("special_tokens", Json::object());
  if (!single.is_array() || !special.is_object()) {
    fail(ErrorCode::kUnsupported, "{}: 'single' must be a list and 'special_tokens' an object", source);
  }
  std::vector<std::optional<int32_t>> items;
  int texts = 0;
  for (const Json& item : single) {
    if (item.is_object() && item.contains("Sequence")) {
      const auto id = jsonGetOr<std::string>(item["Sequence"], "id", "A", source);
      if (id != "A") fail(ErrorCode::kUnsupported, "{}: 'single' uses the sequence '{}'", source, printable(id));
      items.emplace_back();
      ++texts;
    } else if (item.is_object() && item.contains("SpecialToken")) {
      const auto name = jsonGet<std::string>(item["SpecialToken"], "id", source);
      const auto token = special.find(name);
      if (token == special.end() || !token->is_object() || !token->contains("ids") || !(*token)["ids"].is_array()) {
        fail(ErrorCode::kCorrupt, "{}: 'special_tokens' has no ids for a token of 'single'", source);
      }
      for (const Json& id : (*token)["ids"]) items.emplace_back(readId(id, source));
    } else {
      fail(ErrorCode::kUnsupported, "{}: an item of 'single' is neither Sequence nor SpecialToken", source);
    }
  }
  if (texts != 1 || items.size() > kMaxTemplateIds) {
    fail(ErrorCode::kUnsupported, "{}: 'single' must hold the text once and at most {} ids", source, kMaxTemplateIds);
  }
  return std::make_unique<Template>(std::move(items));
}

// ["</s>", 2] as Bert's and Roberta's processors write it.
int32_t readPair(const Json& json, const char* key, const std::string& source) {
  const auto pair = json.find(key);
  if (pair == json.end() || !pair->is_array() || pair->size() != 2) {
    fail(ErrorCode::kCorrupt, "{}: '{}' must be [token, id]", source, key);
  }
  return readId((*pair)[1], source);
}
}  // namespace

std::unique_ptr<const PostProcessor> makePostProcessor(const Json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (type == "ByteLevel") return nullptr;
  if (type == "TemplateProcessing") return makeTemplate(json, here);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return std::make_unique<Template>(
        std::vector<std::optional<int32_t>>{readPair(json, "cls", here), std::nullopt, readPair(json, "sep", here)});
  }
  if (type == "Sequence") {
    const Json list = json.value("processors", Json());
    if (!list.is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'processors' must be a list", here);
    std::vector<std::unique_ptr<const PostProcessor>> parts;
    for (const Json& part : list) {
      if (part.is_null()) fail(ErrorCode::kInvalidArgument, "{}: 'processors' holds null", here);
      if (auto made = makePostProcessor(part, here)) parts.push_back(std::move(made));
    }
    if (parts.size() > 16) fail(ErrorCode::kUnsupported, "{}: more than 16 processors", here);
    return std::make_unique<SequencePostProcessor>(std::move(parts));
  }
  fail(ErrorCode::kUnsupported, "{}: the post-processor '{}' is not supported", source, printable(type));
}

}  // namespace chorus
