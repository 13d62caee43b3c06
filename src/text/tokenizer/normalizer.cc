#include "text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/precompiled_normalizer.h"
#include "text/tokenizer/text_pattern.h"
#include "text/unicode.h"

namespace chorus {
namespace {

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(int options) : options_(static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE)) {}
  std::string normalize(std::string_view text) const override {
    utf8proc_uint8_t* result = nullptr;
    const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &result, options_);
    if (size < 0) fail(ErrorCode::kExhausted, "cannot normalize a text of {} bytes", text.size());
    std::string out(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
    std::free(result);
    return out;
  }

 private:
  utf8proc_option_t options_;
};

class Lowercase final : public Normalizer {
 public:
  std::string normalize(std::string_view text) const override { return toLower(text); }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string normalize(std::string_view text) const override {
    return text.empty() ? std::string() : prefix_ + std::string(text);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(TextPattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string normalize(std::string_view text) const override { return pattern_.replaceAll(text, content_); }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string normalize(std::string_view text) const override {
    if (left_) text.remove_prefix(leadingSpace(text));
    if (right_) text.remove_suffix(trailingSpace(text));
    return std::string(text);
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  std::string normalize(std::string_view text) const override {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const Utf8Step step = decodeUtf8(text.substr(i));
      if (!isMark(step.code)) out += text.substr(i, static_cast<size_t>(step.length));
      i += static_cast<size_t>(step.length);
    }
    return out;
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  std::string normalize(std::string_view text) const override { return toByteLevel(text); }
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<const Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string normalize(std::string_view text) const override {
    std::string out(text);
    for (const auto& part : parts_) out = part->normalize(out);
    return out;
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};
}  // namespace

std::unique_ptr<const Normalizer> makeNormalizer(const Json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (type == "NFC") return std::make_unique<UnicodeForm>(UTF8PROC_COMPOSE);
  if (type == "NFD") return std::make_unique<UnicodeForm>(UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Prepend") return std::make_unique<Prepend>(jsonGet<std::string>(json, "prepend", here));
  if (type == "Strip") {
    return std::make_unique<Strip>(jsonGet<bool>(json, "strip_left", here), jsonGet<bool>(json, "strip_right", here));
  }
  if (type == "Replace") {
    auto pattern = TextPattern::fromJson(json.value("pattern", Json()), here);
    pattern.refuseEmptyMatches(here);
    return std::make_unique<Replace>(std::move(pattern), jsonGet<std::string>(json, "content", here));
  }
  if (type == "Precompiled") {
    const auto charsmap = json.find("precompiled_charsmap");
    if (charsmap == json.end()) fail(ErrorCode::kInvalidArgument, "{}: 'precompiled_charsmap' is missing", here);
    return makePrecompiledNormalizer(*charsmap, here);
  }
  if (type == "Sequence") {
    const Json list = json.value("normalizers", Json());
    if (!list.is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'normalizers' must be a list", here);
    std::vector<std::unique_ptr<const Normalizer>> parts;
    for (const Json& part : list) {
      auto made = makeNormalizer(part, here);
      if (!made) fail(ErrorCode::kInvalidArgument, "{}: 'normalizers' holds null", here);
      parts.push_back(std::move(made));
    }
    return std::make_unique<SequenceNormalizer>(std::move(parts));
  }
  fail(ErrorCode::kUnsupported, "{}: the normalizer '{}' is not supported", source, printable(type));
}

}  // namespace chorus
