#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace chorus {
namespace {

// The length of the longest prefix of the stop string that a text ends with, after one more byte. matched: the length
// before it, less than the whole string's.
size_t advanced(const StopStrings::Stop& stop, size_t matched, char byte) {
  while (matched > 0 && stop.text[matched] != byte) matched = stop.prefixes[matched - 1];
  return stop.text[matched] == byte ? matched + 1 : matched;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) {
  std::erase_if(stops, [](const std::string& stop) { return stop.empty(); });
  std::stable_sort(stops.begin(), stops.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  for (std::string& text : stops) {
    Stop stop;
    stop.prefixes.resize(text.size());
    for (uint32_t at = 1, length = 0; at < text.size(); ++at) {
      while (length > 0 && text[at] != text[length]) length = stop.prefixes[length - 1];
      if (text[at] == text[length]) ++length;
      stop.prefixes[at] = length;
    }
    stop.text = std::move(text);
    stops_.push_back(std::move(stop));
  }
}

size_t StopStrings::bytes() const {
  size_t bytes = stops_.size() * sizeof(Stop);
  for (const Stop& stop : stops_) bytes += stop.text.capacity() + stop.prefixes.capacity() * sizeof(uint32_t);
  return bytes;
}

StopMatcher::StopMatcher(std::shared_ptr<const StopStrings> stops, bool include_stop)
    : stops_(std::move(stops)),
      prefixes_(stops_ != nullptr ? stops_->longestFirst().size() : 0),
      include_stop_(include_stop) {}

std::string StopMatcher::feed(std::string_view text) {
  if (stopped()) return {};
  const size_t seen = pending_.size();
  pending_ += text;
  for (size_t at = seen; at < pending_.size(); ++at) {
    const StopStrings::Stop* complete = nullptr;
    for (size_t i = 0; i < prefixes_.size(); ++i) {
      const StopStrings::Stop& stop = stops_->longestFirst()[i];
      prefixes_[i] = advanced(stop, prefixes_[i], pending_[at]);
      if (prefixes_[i] == stop.text.size() && complete == nullptr) complete = &stop;
    }
    if (complete == nullptr) continue;
    matched_ = complete->text;
    pending_.resize(include_stop_ ? at + 1 : at + 1 - matched_.size());
    return std::exchange(pending_, {});
  }
  // Hold back the longest end of the text that is the beginning of a stop string.
  size_t keep = 0;
  for (const size_t prefix : prefixes_) keep = std::max(keep, prefix);
  std::string out = pending_.substr(0, pending_.size() - keep);
  pending_.erase(0, out.size());
  return out;
}

std::string StopMatcher::flush() { return std::exchange(pending_, {}); }

}  // namespace chorus
