#include "server/model/text_waits.h"

#include <algorithm>
#include <utility>

namespace chorus::server {

TextWaits::Id TextWaits::add(std::string adapter, Then then, Clock::time_point now) {
  waits_.emplace(last_ + 1, Wait{std::move(adapter), std::move(then), now});
  return ++last_;
}

template <typename Chosen>
std::vector<TextWaits::Then> TextWaits::takeIf(const Chosen& chosen) {
  std::vector<Then> taken;
  taken.reserve(waits_.size());
  std::erase_if(waits_, [&](auto& entry) {
    if (!chosen(entry.second)) return false;
    taken.push_back(std::move(entry.second.then));
    return true;
  });
  return taken;
}

TextWaits::Then TextWaits::take(Id id) {
  auto wait = waits_.extract(id);
  return wait ? std::move(wait.mapped().then) : nullptr;
}

std::vector<TextWaits::Then> TextWaits::takeAllOf(std::string_view adapter) {
  return takeIf([&](const Wait& wait) { return wait.adapter == adapter; });
}

std::vector<TextWaits::Then> TextWaits::takeOlderThan(Clock::time_point time) {
  return takeIf([&](const Wait& wait) { return wait.since < time; });
}

std::vector<TextWaits::Then> TextWaits::takeAll() {
  return takeIf([](const Wait&) { return true; });
}

std::vector<std::string> TextWaits::adapters() const {
  std::vector<std::string> names;
  for (const auto& [id, wait] : waits_) {
    if (std::ranges::find(names, wait.adapter) == names.end()) names.push_back(wait.adapter);
  }
  return names;
}

}  // namespace chorus::server
