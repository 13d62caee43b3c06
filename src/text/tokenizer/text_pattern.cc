#include "text/tokenizer/text_pattern.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "text/tokenizer/utf8_json.h"
#include "text/unicode.h"

namespace chorus {
namespace {
constexpr size_t kChargeEvery = 4096;
}

SplitBehavior splitBehaviorFromName(std::string_view name, std::string_view source) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail(ErrorCode::kUnsupported, "{}: the split behavior '{}' is not supported", source, printable(name));
}

void MatchSplitter::addMatch(size_t begin, size_t end) {
  if (done_ != begin) add({done_, begin, invert_});
  add({begin, end, !invert_});
  done_ = end;
}

void MatchSplitter::finish(size_t text_size) {
  if (done_ != text_size) add({done_, text_size, invert_});
  givePending();
}

void MatchSplitter::givePending() {
  if (pending_) give(pending_->begin, pending_->end);
  pending_.reset();
}

void MatchSplitter::add(Segment segment) {
  switch (behavior_) {
    case SplitBehavior::kIsolated:
      give(segment.begin, segment.end);
      break;
    case SplitBehavior::kRemoved:
      if (!segment.is_match) give(segment.begin, segment.end);
      break;
    case SplitBehavior::kContiguous:
      if (pending_ && pending_->is_match == segment.is_match) {
        pending_->end = segment.end;
      } else {
        givePending();
        pending_ = segment;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      // A match directly after a match becomes a range of its own.
      if (pending_ && segment.is_match && !previous_is_match_) {
        pending_->end = segment.end;
      } else {
        givePending();
        pending_ = segment;
      }
      previous_is_match_ = segment.is_match;
      break;
    case SplitBehavior::kMergedWithNext:
      if (segment.is_match) {
        givePending();
        pending_ = segment;
      } else {
        give(pending_ ? pending_->begin : segment.begin, segment.end);
        pending_.reset();
      }
      break;
  }
}

TextPattern TextPattern::fromMember(const Json& json, std::string_view source, WorkMeter& meter) {
  const auto it = json.find("pattern");
  if (it != json.end() && it->is_object() && it->size() == 1) {
    if (it->contains("Regex")) return fromRegex(jsonGet<std::string>(*it, "Regex", source), source, meter);
    if (it->contains("String")) return fromLiteral(jsonGetText(*it, "String", source), source);
  }
  fail(ErrorCode::kUnsupported, "{}: a pattern must be {{\"String\": ...}} or {{\"Regex\": ...}}", source);
}

TextPattern TextPattern::fromLiteral(Utf8Text literal, std::string_view source) {
  if (literal.empty()) fail(ErrorCode::kUnsupported, "{}: an empty pattern is not supported", source);
  TextPattern pattern;
  pattern.literal_ = std::move(literal);
  const std::string& bytes = pattern.literal_.bytes();
  pattern.prefixes_.resize(bytes.size());
  for (uint32_t at = 1, length = 0; at < bytes.size(); ++at) {
    while (length > 0 && bytes[at] != bytes[length]) length = pattern.prefixes_[length - 1];
    if (bytes[at] == bytes[length]) ++length;
    pattern.prefixes_[at] = length;
  }
  return pattern;
}

TextPattern TextPattern::fromRegex(std::string_view regex, std::string_view source, WorkMeter& meter) {
  TextPattern pattern;
  pattern.known_ = findKnownSplit(regex);
  if (pattern.known_ == nullptr) pattern.regex_.emplace(regex, source, meter);
  return pattern;
}

void TextPattern::forEachMatch(Utf8View text, EncodeWork& work, FunctionRef<bool(size_t, size_t)> found) const {
  if (known_ != nullptr) return forEachKnownMatch(known_, text, work, found);
  if (regex_) return regex_->forEachMatch(text, work, found);
  forEachLiteral(text, work, found);
}

// Knuth-Morris-Pratt search, because the time of std::string_view::find grows with the product of both sizes.
void TextPattern::forEachLiteral(Utf8View text, EncodeWork& work, FunctionRef<bool(size_t, size_t)> found) const {
  const std::string_view bytes = text.bytes(), literal = literal_.bytes();
  size_t matched = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (at % kChargeEvery == 0) work.meter.charge(2 * std::min(kChargeEvery, bytes.size() - at));
    if (matched == 0) {
      const void* next = std::memchr(bytes.data() + at, literal[0], bytes.size() - at);
      if (next == nullptr) return;
      const size_t to = static_cast<size_t>(static_cast<const char*>(next) - bytes.data());
      work.meter.charge(to - at);
      at = to;
    }
    while (matched > 0 && bytes[at] != literal[matched]) matched = prefixes_[matched - 1];
    if (bytes[at] == literal[matched]) ++matched;
    if (matched < literal.size()) continue;
    matched = 0;
    if (!found(at + 1 - literal.size(), at + 1)) return;
  }
}

void TextPattern::refuseEmptyMatches(std::string_view source) const {
  if (!regex_) return;
  // A pattern that tries every combination of empty alternatives has no other bound.
  constexpr uint64_t kMostWork = uint64_t{1} << 20;
  WorkMeter meter({.work = kMostWork});
  Scratch scratch(Scratch::limitFor(0), meter);
  EncodeWork work{meter, scratch};
  bool matches = false;
  try {
    matches = regex_->matches(Utf8View(), work);
  } catch (const WorkStopped&) {
    fail(ErrorCode::kUnsupported, "{}: matching the regular expression takes too many steps even on the empty text",
         source);
  }
  if (matches) {
    fail(ErrorCode::kUnsupported, "{}: replacing a pattern that matches the empty text is not supported", source);
  }
}

size_t TextPattern::replaceAll(Utf8View text, Utf8View content, EncodeWork& work, ScratchText& out) const {
  size_t done = 0, first = 0;
  out.reserve(out.size() + text.size());
  forEachMatch(text, work, [&](size_t begin, size_t end) {
    out.append(text.sub(done, begin));
    out.append(content);
    if (begin == 0) first = end;
    done = end;
    return true;
  });
  out.append(text.from(done));
  return first;
}

size_t TextPattern::memoryBytes() const {
  return sizeof(*this) + literal_.size() * (1 + sizeof(uint32_t)) + (regex_ ? regex_->memoryBytes() : 0);
}

}  // namespace chorus
