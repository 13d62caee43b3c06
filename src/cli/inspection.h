// Results of `chorus inspect` for one path: named facts, and the problem if there is one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace chorus {

class Inspection {
 public:
  void setKind(std::string kind) { kind_ = std::move(kind); }
  // Adds one line of the table; --json prints `value` instead of `text`. A repeated name replaces the earlier fact.
  void add(std::string name, Json value, std::string text);
  void add(std::string name, const std::string& text) { add(std::move(name), text, text); }
  void add(std::string name, int64_t number) { add(std::move(name), number, std::to_string(number)); }
  void addBytes(std::string name, uint64_t bytes, std::string_view note = "");
  void addList(std::string name, const std::vector<std::string>& items);

  // One line that says what is missing or wrong. Unset if this program would serve or read the path.
  std::optional<std::string> problem;

  // The text for a terminal: one line for each fact, in which untrusted text is printable (base/printable.h).
  std::string table(const std::filesystem::path& path) const;
  Json json(const std::filesystem::path& path) const;

 private:
  struct Fact {
    std::string name;
    Json value;
    std::string text;
  };
  std::string kind_;
  std::vector<Fact> facts_;
};

// JSON for a terminal or a file: indented, in ASCII.
std::string jsonText(const Json& json);

// Formats a size as "1.5 KiB", "12.0 MiB", "3.25 GiB".
std::string bytesText(uint64_t bytes);

}  // namespace chorus
