// A pattern of a tokenizer file (literal string or regular expression) and the ways to cut a text at its matches.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "text/tokenizer/known_splits.h"
#include "text/tokenizer/regex.h"

namespace chorus {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
// Throws Error(kUnsupported) that names source.
SplitBehavior splitBehaviorFromName(std::string_view name, std::string_view source);

// Turns the matches in a text and the gaps between them into ranges of the text, one at a time.
class MatchSplitter {
 public:
  using Sink = FunctionRef<void(size_t begin, size_t end)>;

  // invert: swaps matches and gaps. Empty ranges are left out.
  MatchSplitter(SplitBehavior behavior, bool invert, Sink sink) : behavior_(behavior), invert_(invert), sink_(sink) {}

  // Matches must be added in ascending order.
  void addMatch(size_t begin, size_t end);
  void finish(size_t text_size);

 private:
  struct Segment {
    size_t begin, end;
    bool is_match;
  };
  void add(Segment segment);
  void give(size_t begin, size_t end) {
    if (begin < end) sink_(begin, end);
  }
  void givePending();

  SplitBehavior behavior_;
  bool invert_;
  Sink sink_;
  size_t done_ = 0;
  std::optional<Segment> pending_;  // the next segment may be merged into it
  bool previous_is_match_ = false;
};

// A literal ({"String": "..."}) or a regular expression ({"Regex": "..."}). Immutable.
class TextPattern {
 public:
  // Reads the member "pattern" of json. meter: charged as by Regex.
  static TextPattern fromMember(const Json& json, std::string_view source, WorkMeter& meter);
  // Throws Error(kUnsupported) for an empty literal.
  static TextPattern fromLiteral(Utf8Text literal, std::string_view source);
  static TextPattern fromRegex(std::string_view pattern, std::string_view source, WorkMeter& meter);

  // Same contract as Regex::forEachMatch.
  void forEachMatch(Utf8View text, EncodeWork& work, FunctionRef<bool(size_t begin, size_t end)> found) const;
  // Appends text to out with every match replaced. Returns the length of the match at the start of text, 0 for none.
  size_t replaceAll(Utf8View text, Utf8View content, EncodeWork& work, ScratchText& out) const;
  // Throws Error(kUnsupported) if the pattern matches the empty text, because replacing that has no agreed meaning, or
  // if that takes too long to tell, and the Errors of forEachMatch().
  void refuseEmptyMatches(std::string_view source) const;
  size_t memoryBytes() const;

 private:
  void forEachLiteral(Utf8View text, EncodeWork& work, FunctionRef<bool(size_t begin, size_t end)> found) const;

  Utf8Text literal_;
  std::vector<uint32_t> prefixes_;  // Knuth-Morris-Pratt table: per prefix of literal_, its longest border
  std::optional<Regex> regex_;
  KnownSplit known_ = nullptr;
};

}  // namespace chorus
