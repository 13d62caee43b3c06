// Stop strings in a stream of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// One per generated sequence. Text passes through until a stop string is complete; what may be the beginning of a
// stop string is held back. How the text is cut into pieces makes no difference. Of several stop strings the one
// that is complete first counts; of those complete at the same character, the longest.
class StopMatcher {
 public:
  // Empty stop strings are left out. include_stop: the stop string itself is part of the text.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  // The text that can be sent now. After a stop string nothing more is given. Takes a step for each byte and stop
  // string, however long they are.
  std::string feed(std::string_view text);
  // After the last piece: what was held back.
  std::string flush();

  bool stopped() const { return !matched_.empty(); }
  // The stop string that ended the text; empty before that.
  const std::string& matchedStop() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> prefixes;  // for each beginning of the text, the longest one that it ends with
    size_t matched = 0;              // bytes of the text that the input ends with
  };
  // Takes one more byte; true when the stop string is complete.
  static bool advance(Stop& stop, char byte);

  std::vector<Stop> stops_;  // longest first
  bool include_stop_;
  std::string pending_;
  std::string matched_;
};

}  // namespace chorus
