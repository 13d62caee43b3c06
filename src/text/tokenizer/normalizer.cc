#include "text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/precompiled_normalizer.h"
#include "text/tokenizer/text_pattern.h"
#include "text/tokenizer/unicode_form.h"
#include "text/tokenizer/utf8_json.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxNormalizers = 64;

class FormStage final : public NormalizerStage {
 public:
  explicit FormStage(UnicodeForm form) : form_(form) {}
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const override {
    appendNormalForm(text, form_, work, out);
  }

 private:
  UnicodeForm form_;
};

class Lowercase final : public NormalizerStage {
 public:
  void normalize(Utf8View text, EncodeWork&, ScratchText& out) const override {
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const auto character = text.characterAt(at);
      at += character.length;
      // U+0130 (I with a dot above) is the only character whose lower case is two characters.
      if (character.code == 0x130) {
        out.append('i');
        out.append(0x307);
      } else {
        out.append(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character.code))));
      }
    }
  }
};

class Prepend final : public NormalizerStage {
 public:
  explicit Prepend(Utf8Text prefix) : prefix_(std::move(prefix)) {}
  void normalize(Utf8View text, EncodeWork&, ScratchText& out) const override {
    if (text.empty()) return;
    out.reserve(prefix_.size() + text.size());
    out.append(prefix_);
    out.append(text);
  }
  size_t memoryBytes() const override { return sizeof(*this) + prefix_.size(); }

 private:
  Utf8Text prefix_;
};

class Replace final : public NormalizerStage {
 public:
  Replace(TextPattern pattern, Utf8Text content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const override {
    pattern_.replaceAll(text, content_, work, out);
  }
  size_t memoryBytes() const override { return sizeof(*this) + content_.size() + pattern_.memoryBytes(); }

 private:
  TextPattern pattern_;
  Utf8Text content_;
};

class Strip final : public NormalizerStage {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const override {
    work.meter.charge(text.size());
    size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const auto character = text.characterAt(begin);
      if (!isUnicodeSpace(character.code)) break;
      begin += character.length;
    }
    while (right_ && end > begin) {
      const size_t before = text.before(end);
      if (!isUnicodeSpace(text.characterAt(before).code)) break;
      end = before;
    }
    out.append(text.sub(begin, end));
  }

 private:
  bool left_, right_;
};

class StripAccents final : public NormalizerStage {
 public:
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const override {
    work.meter.charge(text.size());
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const auto character = text.characterAt(at);
      if (!isMark(character.code)) out.append(character.code);
      at += character.length;
    }
  }
};

class ByteLevelNormalizer final : public NormalizerStage {
 public:
  void normalize(Utf8View text, EncodeWork&, ScratchText& out) const override { appendByteLevel(text.bytes(), out); }
};

std::unique_ptr<const NormalizerStage> makeNormalizer(const std::string& type, const Json& json,
                                                      const std::string& here) {
  if (type == "NFC") return std::make_unique<FormStage>(UnicodeForm{.compose = true});
  if (type == "NFD") return std::make_unique<FormStage>(UnicodeForm{});
  if (type == "NFKC") return std::make_unique<FormStage>(UnicodeForm{.compatibility = true, .compose = true});
  if (type == "NFKD") return std::make_unique<FormStage>(UnicodeForm{.compatibility = true});
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Prepend") return std::make_unique<Prepend>(jsonGetText(json, "prepend", here));
  if (type == "Strip") {
    return std::make_unique<Strip>(jsonGet<bool>(json, "strip_left", here), jsonGet<bool>(json, "strip_right", here));
  }
  if (type == "Replace") {
    auto pattern = TextPattern::fromMember(json, here);
    pattern.refuseEmptyMatches(here);
    return std::make_unique<Replace>(std::move(pattern), jsonGetText(json, "content", here));
  }
  if (type == "Precompiled") {
    const auto charsmap = json.find("precompiled_charsmap");
    if (charsmap == json.end()) fail(ErrorCode::kInvalidArgument, "{}: 'precompiled_charsmap' is missing", here);
    return makePrecompiledNormalizer(*charsmap, here);
  }
  return nullptr;
}

void appendStages(const Json& json, const std::string& source,
                  std::vector<std::unique_ptr<const NormalizerStage>>& stages) {
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (type == "Sequence") {
    const auto list = json.find("normalizers");
    if (list == json.end() || !list->is_array()) {
      fail(ErrorCode::kInvalidArgument, "{}: 'normalizers' must be a list", here);
    }
    for (const Json& part : *list) {
      if (part.is_null()) fail(ErrorCode::kInvalidArgument, "{}: 'normalizers' holds null", here);
      appendStages(part, here, stages);
    }
    return;
  }
  if (stages.size() == kMaxNormalizers)
    fail(ErrorCode::kUnsupported, "{}: more than {} normalizers", source, kMaxNormalizers);
  auto stage = makeNormalizer(type, json, here);
  if (!stage) fail(ErrorCode::kUnsupported, "{}: the normalizer '{}' is not supported", source, printable(type));
  stages.push_back(std::move(stage));
}
}  // namespace

void Normalizer::normalize(Utf8View text, EncodeWork& work, ScratchText& out) const {
  out.clear();
  if (stages_.empty()) return out.append(text);
  stages_[0]->normalize(text, work, out);
  for (size_t i = 1; i < stages_.size(); ++i) {
    ScratchText next(work);
    stages_[i]->normalize(out.view(), work, next);
    out.swap(next);
  }
}

size_t Normalizer::memoryBytes() const {
  size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->memoryBytes();
  return bytes;
}

std::unique_ptr<const Normalizer> makeNormalizer(const Json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  std::vector<std::unique_ptr<const NormalizerStage>> stages;
  appendStages(json, source, stages);
  return std::make_unique<const Normalizer>(std::move(stages));
}

}  // namespace chorus
