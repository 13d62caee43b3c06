#include "text/tokenizer/normalizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/library_characters.h"
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

// Maps every character by itself.
class MapStage final : public NormalizerStage {
 public:
  // Appends what the character becomes, at most a few characters.
  using Map = void (*)(uint32_t code, ScratchText& out);
  explicit MapStage(Map map) : map_(map) {}
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const override {
    work.meter.charge(text.size());
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const auto character = text.characterAt(at);
      map_(character.code, out);
      if (at == 0 && out.empty()) out.loseStart();
      at += character.length;
    }
  }

 private:
  Map map_;
};

void lowercase(uint32_t code, ScratchText& out) {
  // U+0130 (I with a dot above) is the only character whose lower case is two characters.
  if (code == 0x130) {
    out.append('i');
    out.append(0x307);
  } else {
    out.append(library::lowercaseOf(code));
  }
}

void stripMark(uint32_t code, ScratchText& out) {
  if (!library::isMark(code)) out.append(code);
}

void stripNonspacingMark(uint32_t code, ScratchText& out) {
  if (!library::isNonspacingMark(code)) out.append(code);
}

void cleanForBert(uint32_t code, ScratchText& out) {
  if (!library::isControl(code)) out.append(isUnicodeSpace(code) ? ' ' : code);
}

// The blocks in which BERT takes each character for a word.
void spaceChinese(uint32_t code, ScratchText& out) {
  static constexpr std::pair<uint32_t, uint32_t> kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  const bool chinese = std::any_of(std::begin(kBlocks), std::end(kBlocks),
                                   [&](const auto& block) { return code >= block.first && code <= block.second; });
  if (chinese) out.append(' ');
  out.append(code);
  if (chinese) out.append(' ');
}

// The normalization of neural machine translation models: control characters vanish, and some become spaces.
void normalizeForTranslation(uint32_t code, ScratchText& out) {
  const auto within = [&](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  if (within(0x1, 0x8) || code == 0xB || within(0xE, 0x1F) || code == 0x7F || code == 0x8F || code == 0x9F) return;
  const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                     within(0x200B, 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF ||
                     code == 0xFFFD;
  out.append(space ? ' ' : code);
}

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
    if (const size_t replaced = pattern_.replaceAll(text, content_, work, out); replaced > 0) {
      // The library counts the replacement as the last character that it replaces.
      if (content_.empty() || replaced > text.characterAt(0).length) out.loseStart();
    }
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
    if (begin > 0) out.loseStart();
    out.append(text.sub(begin, end));
  }

 private:
  bool left_, right_;
};

class ByteLevelNormalizer final : public NormalizerStage {
 public:
  void normalize(Utf8View text, EncodeWork&, ScratchText& out) const override { appendByteLevel(text.bytes(), out); }
};

std::unique_ptr<const NormalizerStage> makeNormalizer(const std::string& type, const Json& json,
                                                      const std::string& here, WorkMeter& meter) {
  if (type == "NFC") return std::make_unique<FormStage>(UnicodeForm{.compose = true});
  if (type == "NFD") return std::make_unique<FormStage>(UnicodeForm{});
  if (type == "NFKC") return std::make_unique<FormStage>(UnicodeForm{.compatibility = true, .compose = true});
  if (type == "NFKD") return std::make_unique<FormStage>(UnicodeForm{.compatibility = true});
  if (type == "Lowercase") return std::make_unique<MapStage>(lowercase);
  if (type == "StripAccents") return std::make_unique<MapStage>(stripMark);
  if (type == "Nmt") return std::make_unique<MapStage>(normalizeForTranslation);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Prepend") return std::make_unique<Prepend>(jsonGetText(json, "prepend", here));
  if (type == "Strip") {
    return std::make_unique<Strip>(jsonGet<bool>(json, "strip_left", here), jsonGet<bool>(json, "strip_right", here));
  }
  if (type == "Replace") {
    auto pattern = TextPattern::fromMember(json, here, meter);
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

using Stages = std::vector<std::unique_ptr<const NormalizerStage>>;

void appendStage(std::unique_ptr<const NormalizerStage> stage, const std::string& source, Stages& stages) {
  if (stages.size() == kMaxNormalizers)
    fail(ErrorCode::kUnsupported, "{}: more than {} normalizers", source, kMaxNormalizers);
  stages.push_back(std::move(stage));
}

// A BertNormalizer is up to five stages.
void appendBert(const Json& json, const std::string& here, Stages& stages) {
  const auto add = [&](auto stage) { appendStage(std::make_unique<decltype(stage)>(std::move(stage)), here, stages); };
  const bool lower = jsonGet<bool>(json, "lowercase", here);
  if (jsonGet<bool>(json, "clean_text", here)) add(MapStage(cleanForBert));
  if (jsonGet<bool>(json, "handle_chinese_chars", here)) add(MapStage(spaceChinese));
  if (jsonGetOr<bool>(json, "strip_accents", lower, here)) {
    add(FormStage(UnicodeForm{}));
    add(MapStage(stripNonspacingMark));
  }
  if (lower) add(MapStage(lowercase));
}

void appendStages(const Json& json, const std::string& source, WorkMeter& meter, Stages& stages) {
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (type == "Sequence") {
    const auto list = json.find("normalizers");
    if (list == json.end() || !list->is_array()) {
      fail(ErrorCode::kInvalidArgument, "{}: 'normalizers' must be a list", here);
    }
    for (const Json& part : *list) {
      if (part.is_null()) fail(ErrorCode::kInvalidArgument, "{}: 'normalizers' holds null", here);
      appendStages(part, here, meter, stages);
    }
    return;
  }
  if (type == "BertNormalizer") return appendBert(json, here, stages);
  auto stage = makeNormalizer(type, json, here, meter);
  if (!stage) fail(ErrorCode::kUnsupported, "{}: the normalizer '{}' is not supported", source, printable(type));
  appendStage(std::move(stage), source, stages);
}
}  // namespace

void Normalizer::normalize(Utf8View text, EncodeWork& work, ScratchText& out) const {
  out.clear();
  if (stages_.empty()) return out.append(text);
  stages_[0]->normalize(text, work, out);
  for (size_t i = 1; i < stages_.size(); ++i) {
    ScratchText next(work);
    if (out.lostStart()) next.loseStart();
    stages_[i]->normalize(out.view(), work, next);
    out.swap(next);
  }
}

size_t Normalizer::memoryBytes() const {
  size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->memoryBytes();
  return bytes;
}

std::unique_ptr<const Normalizer> makeNormalizer(const Json& json, const std::string& source, WorkMeter& meter) {
  if (json.is_null()) return nullptr;
  Stages stages;
  appendStages(json, source, meter, stages);
  return std::make_unique<const Normalizer>(std::move(stages));
}

}  // namespace chorus
