#include "text/tokenizer/pre_tokenizer.h"

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/text_pattern.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// Cuts every piece into the ranges that ranges_of(text) gives; empty ones are dropped.
template <typename F>
void cutPieces(std::vector<Piece>& pieces, F&& ranges_of) {
  std::vector<Piece> out;
  out.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    for (const auto& [begin, end] : ranges_of(std::string_view(piece.text))) {
      if (begin < end) out.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
    }
  }
  pieces = std::move(out);
}

// Every character for which is_match(code) holds is a match of its own.
template <typename F>
std::vector<Segment> segmentsByCharacter(std::string_view text, F&& is_match) {
  std::vector<TextRange> matches;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decodeUtf8(text.substr(i));
    const size_t end = i + static_cast<size_t>(step.length);
    if (is_match(step.code)) matches.emplace_back(i, end);
    i = end;
  }
  return withGaps(text.size(), matches);
}

// Splits at characters of one kind.
class CharacterSplit final : public PreTokenizer {
 public:
  using Predicate = bool (*)(uint32_t);
  CharacterSplit(Predicate is_match, SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void apply(std::vector<Piece>& pieces) const override {
    cutPieces(pieces,
              [&](std::string_view text) { return splitSegments(segmentsByCharacter(text, is_match_), behavior_); });
  }

 private:
  Predicate is_match_;
  SplitBehavior behavior_;
};

// Runs of word characters and runs of others; white space is dropped.
class WordsAndSymbols final : public PreTokenizer {
 public:
  void apply(std::vector<Piece>& pieces) const override {
    enum class Kind { kSpace, kWord, kOther };
    cutPieces(pieces, [](std::string_view text) {
      std::vector<TextRange> ranges;
      Kind previous = Kind::kSpace;
      for (size_t i = 0; i < text.size();) {
        const Utf8Step step = decodeUtf8(text.substr(i));
        const size_t end = i + static_cast<size_t>(step.length);
        const Kind kind = isWordCharacter(step.code)  ? Kind::kWord
                          : isUnicodeSpace(step.code) ? Kind::kSpace
                                                      : Kind::kOther;
        if (kind != Kind::kSpace) {
          if (kind == previous)
            ranges.back().second = end;
          else
            ranges.emplace_back(i, end);
        }
        previous = kind;
        i = end;
      }
      return ranges;
    });
  }
};

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(std::vector<Piece>& pieces) const override {
    cutPieces(pieces, [&](std::string_view text) {
      auto segments = withGaps(text.size(), pattern_.findAll(text));
      if (invert_) {
        for (Segment& s : segments) s.is_match = !s.is_match;
      }
      return splitSegments(segments, behavior_);
    });
  }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) split_ = findKnownSplit(kGpt2Pattern);
  }
  void apply(std::vector<Piece>& pieces) const override {
    if (add_prefix_space_) {
      for (Piece& piece : pieces) {
        if (!piece.text.starts_with(' ')) piece.text.insert(0, 1, ' ');
      }
    }
    if (split_ != nullptr) cutPieces(pieces, split_);
    for (Piece& piece : pieces) piece.text = toByteLevel(piece.text);
  }

 private:
  bool add_prefix_space_;
  KnownSplit split_ = nullptr;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}
  void apply(std::vector<Piece>& pieces) const override {
    for (Piece& piece : pieces) {
      std::string text;
      for (const char c : piece.text) {
        if (c == ' ')
          text += replacement_;
        else
          text.push_back(c);
      }
      const bool prepend = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_start);
      if (prepend && !text.starts_with(replacement_)) text.insert(0, replacement_);
      piece.text = std::move(text);
    }
    if (!split_) return;
    cutPieces(pieces, [&](std::string_view text) {
      std::vector<TextRange> matches;
      for (size_t at = 0; (at = text.find(replacement_, at)) != std::string_view::npos; at += replacement_.size()) {
        matches.emplace_back(at, at + replacement_.size());
      }
      return splitSegments(withGaps(text.size(), matches), SplitBehavior::kMergedWithNext);
    });
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<const PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(std::vector<Piece>& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

std::unique_ptr<const PreTokenizer> makeMetaspace(const Json& json, const std::string& source) {
  const auto replacement = jsonGet<std::string>(json, "replacement", source);
  if (countCharacters(replacement) != 1) {
    fail(ErrorCode::kInvalidArgument, "{}: 'replacement' must be one character", source);
  }
  // Files from before prepend_scheme say add_prefix_space.
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
  return std::make_unique<Metaspace>(replacement, prepend, jsonGetOr<bool>(json, "split", true, source));
}

std::unique_ptr<const PreTokenizer> makeSequence(const Json& json, const std::string& source) {
  const Json list = json.value("pretokenizers", Json());
  if (!list.is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'pretokenizers' must be a list", source);
  std::vector<std::unique_ptr<const PreTokenizer>> parts;
  for (const Json& part : list) {
    auto made = makePreTokenizer(part, source);
    if (!made) fail(ErrorCode::kInvalidArgument, "{}: 'pretokenizers' holds null", source);
    parts.push_back(std::move(made));
  }
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}
}  // namespace

std::unique_ptr<const PreTokenizer> makePreTokenizer(const Json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  const auto type = jsonGet<std::string>(json, "type", source);
  const std::string here = source + "." + printable(type);
  if (type == "ByteLevel") {
    // trim_offsets moves offsets only, never ids.
    return std::make_unique<ByteLevel>(jsonGet<bool>(json, "add_prefix_space", here),
                                       jsonGetOr<bool>(json, "use_regex", true, here));
  }
  if (type == "Split") {
    return std::make_unique<PatternSplit>(TextPattern::fromJson(json.value("pattern", Json()), here),
                                          splitBehaviorFromName(jsonGet<std::string>(json, "behavior", here), here),
                                          jsonGet<bool>(json, "invert", here));
  }
  if (type == "Whitespace") {
    return std::make_unique<WordsAndSymbols>();
  }
  if (type == "WhitespaceSplit") return std::make_unique<CharacterSplit>(isUnicodeSpace, SplitBehavior::kRemoved);
  if (type == "Digits") {
    return std::make_unique<CharacterSplit>(isNumber, jsonGet<bool>(json, "individual_digits", here)
                                                          ? SplitBehavior::kIsolated
                                                          : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    const auto behavior = jsonGetOr<std::string>(json, "behavior", "Isolated", here);
    return std::make_unique<CharacterSplit>(isPunctuation, splitBehaviorFromName(behavior, here));
  }
  if (type == "CharDelimiterSplit") {
    return std::make_unique<PatternSplit>(
        TextPattern::fromJson({{"String", jsonGet<std::string>(json, "delimiter", here)}}, here),
        SplitBehavior::kRemoved, false);
  }
  if (type == "Metaspace") return makeMetaspace(json, here);
  if (type == "Sequence") return makeSequence(json, here);
  fail(ErrorCode::kUnsupported, "{}: the pre-tokenizer '{}' is not supported", source, printable(type));
}

}  // namespace chorus
