// Finds stop strings in streamed text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// Stop strings with the tables by which they are found. Immutable, so that all sequences of a request share it. Takes
// five bytes for each byte of the strings.
class StopStrings {
 public:
  struct Stop {
    std::string text;
    std::vector<uint32_t> prefixes;  // Knuth-Morris-Pratt table: per prefix of text, its longest border
  };

  // Empty stop strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  const std::vector<Stop>& longestFirst() const { return stops_; }
  // Memory of the strings and tables.
  size_t bytes() const;

 private:
  std::vector<Stop> stops_;
};

// One instance per generated sequence. Text that may be the beginning of a stop string is held back until this is
// decided. The result does not depend on how the text is cut into pieces. The stop string that is complete first ends
// the text; if several are complete at the same position, the longest one does.
class StopMatcher {
 public:
  // stops: null for none. include_stop: the stop string itself is part of the text.
  explicit StopMatcher(std::shared_ptr<const StopStrings> stops, bool include_stop = false);

  // Returns the text that can be sent now; always empty after a stop string. Time is proportional to bytes of text
  // times number of stop strings, whatever their lengths.
  std::string feed(std::string_view text);
  // Call after the last piece: returns the text that was held back.
  std::string flush();

  bool stopped() const { return !matched_.empty(); }
  // The stop string that ended the text; empty before that.
  const std::string& matchedStop() const { return matched_; }

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::vector<size_t> prefixes_;  // for each stop string, the length of its longest prefix that the input ends with
  bool include_stop_;
  std::string pending_;
  std::string matched_;
};

}  // namespace chorus
