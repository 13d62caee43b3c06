// Validators of flag values. Their text appears in --help, in docs/flags.md and in the error line.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <initializer_list>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorus {

// A number from `least` to `most`, inclusive.
template <typename T>
CLI::Validator inRange(T least, T most) {
  const auto text = [](T value) {
    if constexpr (std::is_floating_point_v<T>) return fmt::format("{:.9g}", value);
    return fmt::format("{}", value);
  };
  const std::string range = text(least) + " to " + text(most);
  return CLI::Validator(
      [least, most, range](std::string& input) -> std::string {
        T value{};
        const bool number = CLI::detail::lexical_cast(input, value);
        if (number && value >= least && value <= most) return "";
        const char* kind = std::is_floating_point_v<T> ? "not a number" : "not a whole number";
        return fmt::format("{} is {}; use {}", input, number ? "out of range" : kind, range);
      },
      range);
}

// One of a list of words or numbers.
template <std::ranges::range Values>
CLI::Validator oneOf(const Values& values) {
  std::vector<std::string> words;
  for (const auto& value : values) words.push_back(fmt::format("{}", value));
  std::string choice = fmt::format("{}", fmt::join(words, "|"));
  return CLI::Validator(
      [words, choice](std::string& input) -> std::string {
        if (std::find(words.begin(), words.end(), input) != words.end()) return "";
        return fmt::format("{} is none of its values; use {}", input, choice);
      },
      choice);
}
template <typename T>
CLI::Validator oneOf(std::initializer_list<T> values) {
  return oneOf<std::initializer_list<T>>(values);
}

// Marks an option whose value must appear in no log. The mark is the name of its type, so the option is text to
// everything else.
inline CLI::Option* markSecret(CLI::Option* option) { return option->type_name("SECRET"); }
inline bool isSecret(const CLI::Option& option) { return option.get_type_name().starts_with("SECRET"); }

}  // namespace chorus
