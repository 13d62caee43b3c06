#include "text/tokenizer/pre_tokenizer.h"

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/library_characters.h"
#include "text/tokenizer/text_pattern.h"
#include "text/tokenizer/utf8_json.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// Stages call each other recursively, so their number bounds the stack.
constexpr size_t kMaxPreTokenizers = 32;
constexpr uint64_t kWorkPerCharacter = 8;

void givePart(const Piece& piece, size_t begin, size_t end, PieceSink sink) {
  sink({piece.text.sub(begin, end), piece.at_start && begin == 0});
}

// Splits at the characters that is_match accepts.
class CharacterSplit final : public PreTokenizerStage {
 public:
  using Predicate = bool (*)(uint32_t);
  CharacterSplit(Predicate is_match, SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const override {
    const auto give = [&](size_t begin, size_t end) { givePart(piece, begin, end, sink); };
    MatchSplitter splitter(behavior_, false, give);
    for (size_t at = 0; at < piece.text.size();) {
      work.meter.charge(kWorkPerCharacter);
      const auto character = piece.text.characterAt(at);
      const size_t end = at + character.length;
      if (is_match_(character.code)) splitter.addMatch(at, end);
      at = end;
    }
    splitter.finish(piece.text.size());
  }

 private:
  Predicate is_match_;
  SplitBehavior behavior_;
};

// Splits into runs of word characters and runs of other characters; drops white space.
class WordsAndSymbols final : public PreTokenizerStage {
 public:
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const override {
    enum class Kind { kSpace, kWord, kOther };
    Kind previous = Kind::kSpace;
    size_t begin = 0;
    for (size_t at = 0; at < piece.text.size();) {
      work.meter.charge(kWorkPerCharacter);
      const auto character = piece.text.characterAt(at);
      const Kind kind = library::isWord(character.code)  ? Kind::kWord
                        : isUnicodeSpace(character.code) ? Kind::kSpace
                                                         : Kind::kOther;
      if (kind != previous) {
        if (previous != Kind::kSpace) givePart(piece, begin, at, sink);
        begin = at;
      }
      previous = kind;
      at += character.length;
    }
    if (previous != Kind::kSpace) givePart(piece, begin, piece.text.size(), sink);
  }
};

// Splits where the script changes. Drops the characters before the first one that has a script.
class ScriptSplit final : public PreTokenizerStage {
 public:
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const override {
    uint32_t script = 0;
    size_t begin = 0;
    for (size_t at = 0; at < piece.text.size();) {
      work.meter.charge(kWorkPerCharacter);
      const auto character = piece.text.characterAt(at);
      const uint32_t own = library::scriptOf(character.code);
      if (own != 0 && own != script) {
        if (script != 0) givePart(piece, begin, at, sink);
        script = own;
        begin = at;
      }
      at += character.length;
    }
    if (script != 0) givePart(piece, begin, piece.text.size(), sink);
  }
};

// Splits into parts of a number of characters; the last part may be shorter.
class FixedLengthSplit final : public PreTokenizerStage {
 public:
  explicit FixedLengthSplit(uint64_t length) : length_(length) {}
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const override {
    size_t begin = 0;
    uint64_t characters = 0;
    for (size_t at = 0; at < piece.text.size();) {
      work.meter.charge(kWorkPerCharacter);
      at += piece.text.characterAt(at).length;
      if (++characters < length_) continue;
      givePart(piece, begin, at, sink);
      begin = at;
      characters = 0;
    }
    if (begin < piece.text.size()) givePart(piece, begin, piece.text.size(), sink);
  }

 private:
  uint64_t length_;
};

class PatternSplit final : public PreTokenizerStage {
 public:
  PatternSplit(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const override {
    const auto give = [&](size_t begin, size_t end) { givePart(piece, begin, end, sink); };
    MatchSplitter splitter(behavior_, invert_, give);
    pattern_.forEachMatch(piece.text, work, [&](size_t begin, size_t end) {
      splitter.addMatch(begin, end);
      return true;
    });
    splitter.finish(piece.text.size());
  }
  size_t memoryBytes() const override { return sizeof(*this) + pattern_.memoryBytes(); }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevel final : public PreTokenizerStage {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) split_ = findKnownSplit(kGpt2Pattern);
  }
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const override {
    ScratchText prefixed(work);
    Piece whole = piece;
    if (add_prefix_space_ && !piece.text.bytes().starts_with(' ')) {
      prefixed.reserve(1 + piece.text.size());
      prefixed.append(' ');
      prefixed.append(piece.text);
      whole.text = prefixed.view();
    }
    ScratchText word(work);
    const auto give = [&](size_t begin, size_t end) {
      word.clear();
      appendByteLevel(whole.text.bytes().substr(begin, end - begin), word);
      sink({word.view(), whole.at_start && begin == 0});
      return true;
    };
    if (split_ != nullptr)
      forEachKnownMatch(split_, whole.text, work, give);
    else
      give(0, whole.text.size());
  }

 private:
  bool add_prefix_space_;
  KnownSplit split_ = nullptr;
};

class Metaspace final : public PreTokenizerStage {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(Utf8Text replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}
  void split(const Piece& piece, EncodeWork& work, PieceSink sink) const override {
    const std::string_view bytes = piece.text.bytes();
    const std::string_view mark = replacement_.bytes();
    ScratchText text(work);
    text.reserve(bytes.size() + mark.size());
    const bool prepend = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_start);
    if (prepend && !bytes.starts_with(' ') && !bytes.starts_with(mark)) text.append(replacement_);
    for (size_t done = 0; done < bytes.size();) {
      const size_t space = std::min(bytes.find(' ', done), bytes.size());
      text.append(piece.text.sub(done, space));
      if (space < bytes.size()) text.append(replacement_);
      done = space + 1;
    }
    const Piece whole{text.view(), piece.at_start};
    if (!split_) return sink(whole);
    const auto give = [&](size_t begin, size_t end) { givePart(whole, begin, end, sink); };
    MatchSplitter splitter(SplitBehavior::kMergedWithNext, false, give);
    const std::string_view made = whole.text.bytes();
    work.meter.charge(made.size());
    for (size_t at = 0; (at = made.find(mark, at)) != std::string_view::npos; at += mark.size()) {
      splitter.addMatch(at, at + mark.size());
    }
    splitter.finish(made.size());
  }

 private:
  Utf8Text replacement_;  // one character
  Prepend prepend_;
  bool split_;
};

std::unique_ptr<const PreTokenizerStage> makeMetaspace(const Json& json, const std::string& source) {
  auto replacement = jsonGetText(json, "replacement", source);
  if (countCharacters(replacement.bytes()) != 1) {
    fail(ErrorCode::kInvalidArgument, "{}: 'replacement' must be one character", source);
  }
  // Older files have add_prefix_space instead of prepend_scheme.
  const bool legacy = jsonGetOr<bool>(json, "add_prefix_space", true, source);
  const auto scheme = jsonGetOr<std::string>(json, "prepend_scheme", legacy ? "always" : "never", source);
  Metaspace::Prepend prepend;
  if (scheme == "always")
    prepend = Metaspace::Prepend::kAlways;
  else if (scheme == "first")
    prepend = Metaspace::Prepend::kFirst;
  else if (scheme == "never")
    prepend = Metaspace::Prepend::kNever;
  else
    fail(ErrorCode::kUnsupported, "{}: the prepend_scheme '{}' is not supported", source, printable(scheme));
  return std::make_unique<Metaspace>(std::move(replacement), prepend, jsonGetOr<bool>(json, "split", true, source));
}

std::unique_ptr<const PreTokenizerStage> makeFixedLength(const Json& json, const std::string& source) {
  constexpr uint64_t kDefaultLength = 5;
  const auto length = jsonGetOr<uint64_t>(json, "length", kDefaultLength, source);
  if (length == 0) fail(ErrorCode::kInvalidArgument, "{}: 'length' must be at least 1", source);
  return std::make_unique<FixedLengthSplit>(length);
}

std::unique_ptr<const PreTokenizerStage> makePreTokenizer(const std::string& type, const Json& json,
                                                          const std::string& here, WorkMeter& meter) {
  if (type == "ByteLevel") {
    // trim_offsets is ignored: it changes offsets only, never ids.
    return std::make_unique<ByteLevel>(jsonGet<bool>(json, "add_prefix_space", here),
                                       jsonGetOr<bool>(json, "use_regex", true, here));
  }
  if (type == "Split") {
    return std::make_unique<PatternSplit>(TextPattern::fromMember(json, here, meter),
                                          splitBehaviorFromName(jsonGet<std::string>(json, "behavior", here), here),
                                          jsonGet<bool>(json, "invert", here));
  }
  if (type == "Whitespace") return std::make_unique<WordsAndSymbols>();
  if (type == "WhitespaceSplit") return std::make_unique<CharacterSplit>(isUnicodeSpace, SplitBehavior::kRemoved);
  if (type == "Digits") {
    return std::make_unique<CharacterSplit>(library::isNumber, jsonGet<bool>(json, "individual_digits", here)
                                                                   ? SplitBehavior::kIsolated
                                                                   : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    const auto behavior = jsonGetOr<std::string>(json, "behavior", "Isolated", here);
    return std::make_unique<CharacterSplit>(library::isPunctuation, splitBehaviorFromName(behavior, here));
  }
  if (type == "CharDelimiterSplit") {
    return std::make_unique<PatternSplit>(TextPattern::fromLiteral(jsonGetText(json, "delimiter", here), here),
                                          SplitBehavior::kRemoved, false);
  }
  if (type == "Metaspace") return makeMetaspace(json, here);
  if (type == "UnicodeScripts") return std::make_unique<ScriptSplit>();
  if (type == "FixedLength") return makeFixedLength(json, here);
  return nullptr;
}

void appendStage(std::unique_ptr<const PreTokenizerStage> stage, const std::string& source,
                 std::vector<std::unique_ptr<const PreTokenizerStage>>& stages) {
  if (stages.size() == kMaxPreTokenizers)
    fail(ErrorCode::kUnsupported, "{}: more than {} pre-tokenizers", source, kMaxPreTokenizers);
  stages.push_back(std::move(stage));
}

void appendStages(const Json& json, const std::string& source, WorkMeter& meter,
                  std::vector<std::unique_ptr<const PreTokenizerStage>>& stages) {
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (type == "Sequence") {
    const auto list = json.find("pretokenizers");
    if (list == json.end() || !list->is_array()) {
      fail(ErrorCode::kInvalidArgument, "{}: 'pretokenizers' must be a list", here);
    }
    for (const Json& part : *list) {
      if (part.is_null()) fail(ErrorCode::kInvalidArgument, "{}: 'pretokenizers' holds null", here);
      appendStages(part, here, meter, stages);
    }
    return;
  }
  if (type == "BertPreTokenizer") {
    appendStage(std::make_unique<CharacterSplit>(isUnicodeSpace, SplitBehavior::kRemoved), source, stages);
    return appendStage(std::make_unique<CharacterSplit>(library::isPunctuation, SplitBehavior::kIsolated), source,
                       stages);
  }
  auto stage = makePreTokenizer(type, json, here, meter);
  if (!stage) fail(ErrorCode::kUnsupported, "{}: the pre-tokenizer '{}' is not supported", source, printable(type));
  appendStage(std::move(stage), source, stages);
}
}  // namespace

void PreTokenizer::run(size_t stage, const Piece& piece, EncodeWork& work, PieceSink sink) const {
  if (piece.text.empty()) return;
  if (stage == stages_.size()) return sink(piece);
  stages_[stage]->split(piece, work, [&](const Piece& part) { run(stage + 1, part, work, sink); });
}

size_t PreTokenizer::memoryBytes() const {
  size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->memoryBytes();
  return bytes;
}

std::unique_ptr<const PreTokenizer> makePreTokenizer(const Json& json, const std::string& source, WorkMeter& meter) {
  if (json.is_null()) return nullptr;
  std::vector<std::unique_ptr<const PreTokenizerStage>> stages;
  appendStages(json, source, meter, stages);
  return std::make_unique<const PreTokenizer>(std::move(stages));
}

}  // namespace chorus
