#include "text/tokenizer/text_pattern.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {
// A short text may not grow without bound through a chain of replacements.
constexpr size_t kMaxReplacedBytes = size_t{256} << 20;

// Folds segments so that a match joins what came before it; a second match in a row stands alone.
template <typename Iterator, typename Join>
std::vector<TextRange> mergeMatches(Iterator first, Iterator last, Join&& join) {
  std::vector<TextRange> ranges;
  bool previous_match = false;
  for (; first != last; ++first) {
    if (first->is_match && !previous_match && !ranges.empty())
      join(ranges.back(), *first);
    else
      ranges.emplace_back(first->begin, first->end);
    previous_match = first->is_match;
  }
  return ranges;
}
}  // namespace

SplitBehavior splitBehaviorFromName(std::string_view name, std::string_view source) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail(ErrorCode::kUnsupported, "{}: the split behavior '{}' is not supported", source, printable(name));
}

std::vector<Segment> withGaps(size_t text_size, const std::vector<TextRange>& matches) {
  std::vector<Segment> segments;
  segments.reserve(matches.size() * 2 + 1);
  size_t previous = 0;
  for (const auto& [begin, end] : matches) {
    if (previous != begin) segments.push_back({previous, begin, false});
    segments.push_back({begin, end, true});
    previous = end;
  }
  if (previous != text_size) segments.push_back({previous, text_size, false});
  return segments;
}

std::vector<TextRange> splitSegments(const std::vector<Segment>& segments, SplitBehavior behavior) {
  std::vector<TextRange> ranges;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Segment& s : segments) ranges.emplace_back(s.begin, s.end);
      break;
    case SplitBehavior::kRemoved:
      for (const Segment& s : segments) {
        if (!s.is_match) ranges.emplace_back(s.begin, s.end);
      }
      break;
    case SplitBehavior::kContiguous:
      for (size_t i = 0; i < segments.size(); ++i) {
        if (i > 0 && segments[i].is_match == segments[i - 1].is_match)
          ranges.back().second = segments[i].end;
        else
          ranges.emplace_back(segments[i].begin, segments[i].end);
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      return mergeMatches(segments.begin(), segments.end(),
                          [](TextRange& range, const Segment& s) { range.second = s.end; });
    case SplitBehavior::kMergedWithNext:
      ranges = mergeMatches(segments.rbegin(), segments.rend(),
                            [](TextRange& range, const Segment& s) { range.first = s.begin; });
      std::reverse(ranges.begin(), ranges.end());
      break;
  }
  return ranges;
}

TextPattern TextPattern::fromJson(const Json& json, std::string_view source) {
  if (json.is_object() && json.size() == 1) {
    if (json.contains("Regex")) return fromRegex(jsonGet<std::string>(json, "Regex", source), source);
    if (json.contains("String")) {
      TextPattern pattern;
      pattern.literal_ = jsonGet<std::string>(json, "String", source);
      if (pattern.literal_.empty()) fail(ErrorCode::kUnsupported, "{}: an empty pattern is not supported", source);
      return pattern;
    }
  }
  fail(ErrorCode::kUnsupported, "{}: a pattern must be {{\"String\": ...}} or {{\"Regex\": ...}}", source);
}

TextPattern TextPattern::fromRegex(std::string_view regex, std::string_view source) {
  TextPattern pattern;
  pattern.known_ = findKnownSplit(regex);
  if (pattern.known_ == nullptr) pattern.regex_.emplace(regex, source);
  return pattern;
}

std::vector<TextRange> TextPattern::findAll(std::string_view text) const {
  if (known_ != nullptr) return known_(text);
  if (regex_) return regex_->findAll(text);
  std::vector<TextRange> matches;
  for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos; at += literal_.size()) {
    matches.emplace_back(at, at + literal_.size());
  }
  return matches;
}

void TextPattern::refuseEmptyMatches(std::string_view source) const {
  if (regex_ && !regex_->findAll("").empty()) {
    fail(ErrorCode::kUnsupported, "{}: replacing a pattern that matches the empty text is not supported", source);
  }
}

std::string TextPattern::replaceAll(std::string_view text, std::string_view content) const {
  std::string out;
  size_t previous = 0;
  for (const auto& [begin, end] : findAll(text)) {
    out += text.substr(previous, begin - previous);
    out += content;
    previous = end;
    if (out.size() > kMaxReplacedBytes) {
      fail(ErrorCode::kExhausted, "a tokenizer's replacement makes more than {} bytes of a text", kMaxReplacedBytes);
    }
  }
  out += text.substr(std::min(previous, text.size()));
  return out;
}

}  // namespace chorus
