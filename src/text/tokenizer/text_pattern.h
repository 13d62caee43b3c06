// A pattern of a tokenizer file (literal string or regular expression) and the ways to cut a text at its matches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/known_splits.h"
#include "text/tokenizer/regex.h"

namespace chorus {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
// Throws Error(kUnsupported) that names source.
SplitBehavior splitBehaviorFromName(std::string_view name, std::string_view source);

// A stretch of the text: a match, or what lies between two.
struct Segment {
  size_t begin;
  size_t end;
  bool is_match;
};
// The matches with the gaps between them.
std::vector<Segment> withGaps(size_t text_size, const std::vector<TextRange>& matches);
// What remains of the segments, as ranges of the text. Empty ranges may occur.
std::vector<TextRange> splitSegments(const std::vector<Segment>& segments, SplitBehavior behavior);

// {"String": "..."} or {"Regex": "..."}. Immutable.
class TextPattern {
 public:
  static TextPattern fromJson(const Json& json, std::string_view source);
  static TextPattern fromRegex(std::string_view pattern, std::string_view source);

  std::vector<TextRange> findAll(std::string_view text) const;
  std::string replaceAll(std::string_view text, std::string_view content) const;
  // Throws Error(kUnsupported) when the pattern matches nothing at all: replacing that has no agreed meaning.
  void refuseEmptyMatches(std::string_view source) const;

 private:
  std::string literal_;
  std::optional<Regex> regex_;
  KnownSplit known_ = nullptr;
};

}  // namespace chorus
