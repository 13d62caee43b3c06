#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace chorus {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string StopMatcher::feed(std::string_view text) {
  if (stopped()) return {};
  const size_t seen = pending_.size();
  pending_ += text;
  for (size_t end = seen + 1; end <= pending_.size(); ++end) {
    const std::string_view prefix = std::string_view(pending_).substr(0, end);
    for (const std::string& stop : stops_) {
      if (!prefix.ends_with(stop)) continue;
      matched_ = stop;
      pending_.resize(include_stop_ ? end : end - stop.size());
      return std::exchange(pending_, {});
    }
  }
  const size_t keep = heldBack();
  std::string out = pending_.substr(0, pending_.size() - keep);
  pending_.erase(0, out.size());
  return out;
}

std::string StopMatcher::flush() { return std::exchange(pending_, {}); }

// Length of the longest end of the pending text that a stop string begins with.
size_t StopMatcher::heldBack() const {
  const std::string_view pending = pending_;
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending.size()); n > longest; --n) {
      if (pending.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace chorus
