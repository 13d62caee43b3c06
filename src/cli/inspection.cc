#include "cli/inspection.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

constexpr size_t kShownBytes = size_t{64} << 10;
}  // namespace

std::string bytesText(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  if (value < 1024.0 * 1024) return fmt::format("{:.1f} KiB", value / 1024);
  if (value < 1024.0 * 1024 * 1024) return fmt::format("{:.1f} MiB", value / 1024 / 1024);
  return fmt::format("{:.2f} GiB", value / 1024 / 1024 / 1024);
}

void Inspection::add(std::string name, Json value, std::string text) {
  const auto same = std::find_if(facts_.begin(), facts_.end(), [&](const Fact& fact) { return fact.name == name; });
  Fact fact{std::move(name), std::move(value), std::move(text)};
  if (same != facts_.end()) {
    *same = std::move(fact);
  } else {
    facts_.push_back(std::move(fact));
  }
}

void Inspection::addBytes(std::string name, uint64_t bytes, std::string_view note) {
  std::string text = bytesText(bytes);
  if (!note.empty()) text.append("  ").append(note);
  add(std::move(name), bytes, std::move(text));
}

void Inspection::addList(std::string name, const std::vector<std::string>& items) {
  add(std::move(name), items, items.empty() ? "none" : listSome(items));
}

std::string Inspection::table(const std::filesystem::path& path) const {
  size_t width = 4;
  for (const Fact& fact : facts_) width = std::max(width, fact.name.size());
  // Names and texts come from files of others.
  const auto shown = [](std::string_view text) { return printable(text, kShownBytes); };
  std::string text = fmt::format("{}: {}\n", shown(path.string()), kind_.empty() ? "not read" : shown(kind_));
  for (const Fact& fact : facts_) text += fmt::format("  {:<{}}  {}\n", shown(fact.name), width, shown(fact.text));
  if (!problem) text += "  whole, and this build reads it\n";
  return text;
}

std::string jsonText(const Json& json) {
  constexpr bool kEscaped = true;  // beyond ASCII, which may hold commands of a terminal and reordered text
  return json.dump(2, ' ', kEscaped, Json::error_handler_t::replace) + "\n";
}

Json Inspection::json(const std::filesystem::path& path) const {
  Json facts = Json::object();
  for (const Fact& fact : facts_) facts[fact.name] = fact.value;
  return {{"path", path.string()},
          {"kind", kind_},
          {"whole", !problem.has_value()},
          {"problem", problem ? Json(*problem) : Json(nullptr)},
          {"facts", std::move(facts)}};
}

}  // namespace chorus
