#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace chorus {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
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

bool StopMatcher::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.prefixes[stop.matched - 1];
  if (stop.text[stop.matched] == byte) ++stop.matched;
  return stop.matched == stop.text.size();
}

std::string StopMatcher::feed(std::string_view text) {
  if (stopped()) return {};
  const size_t seen = pending_.size();
  pending_ += text;
  for (size_t at = seen; at < pending_.size(); ++at) {
    const Stop* complete = nullptr;
    for (Stop& stop : stops_) {
      if (advance(stop, pending_[at]) && complete == nullptr) complete = &stop;
    }
    if (complete == nullptr) continue;
    matched_ = complete->text;
    pending_.resize(include_stop_ ? at + 1 : at + 1 - matched_.size());
    return std::exchange(pending_, {});
  }
  // Hold back the longest end of the text that is the beginning of a stop string.
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  std::string out = pending_.substr(0, pending_.size() - keep);
  pending_.erase(0, out.size());
  return out;
}

std::string StopMatcher::flush() { return std::exchange(pending_, {}); }

}  // namespace chorus
