#include "cli/config_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/arguments.h"
#include "cli/variable_names.h"
#include "formats/yaml.h"

namespace chorus {
namespace {

std::string withUnderscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

const CLI::Option* optionNamed(const CLI::App& command, const std::string& key) {
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr()) continue;
    for (const std::string& name : option->get_lnames())
      if (withUnderscores(name) == withUnderscores(key)) return option;
  }
  return nullptr;
}

std::vector<std::string> longNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

bool looksLikeNumber(const std::string& text) {
  double value = 0;
  return text.find_first_not_of("0123456789+-.eE") == std::string::npos && CLI::detail::lexical_cast(text, value);
}

// The value as a word of a command line. Returns nullopt, with the reason in `fault`, if its type is not the option's.
std::optional<std::string> wordOf(const CLI::Option& option, const Json& value, std::string& fault) {
  const std::string type = option.get_type_name();
  const bool is_flag = option.get_items_expected_max() == 0;
  const bool is_number = type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
  const auto refuse = [&](std::string reason) {
    fault = std::move(reason);
    return std::nullopt;
  };
  if (is_flag) return value.is_boolean() ? std::optional(value.dump()) : refuse("must be true or false");
  if (value.is_null()) return refuse("has no value; give one, or remove the line");
  if (value.is_object()) return refuse("has keys of its own; the flag takes no such value");
  if (value.is_array()) return refuse("is a list; the flag takes a single value");
  if (value.is_boolean()) {
    // YAML reads the words on and off as true and false.
    if (type.ends_with("on|off")) return value.get<bool>() ? "on" : "off";
    return refuse(is_number ? "must be a number" : "is true or false; put the word in quotes if it is meant as text");
  }
  if (value.is_number()) {
    if (!is_number) return refuse("is a number; put it in quotes if it is meant as text");
    return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
  }
  auto text = value.get<std::string>();
  if (is_number && looksLikeNumber(text)) return refuse("is text; write the number without quotes");
  if (text.empty()) return refuse("is empty; give a value, or remove the line");
  return text;
}

}  // namespace

ConfigFile::ConfigFile(const CLI::App& command, std::string path) : path_(std::move(path)) {
  YamlKeyLines lines;
  const Json root = parseYaml(readFile(path_, kMaxYamlBytes), path_, lines);
  if (root.is_null()) return;
  if (!root.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: is no map; write one line NAME: VALUE for each flag", path_);
  }
  for (const auto& [key, value] : root.items()) {
    const int line = lines.at(key);
    const CLI::Option* option = optionNamed(command, key);
    if (option == nullptr) {
      const std::string nearest = nearestName(key, longNames(command));
      const std::string_view advice = adviceForFlag(command, key);
      const std::string hint = !advice.empty()   ? std::string(advice)
                               : nearest.empty() ? fmt::format("{} --help lists the flags", calledAs(command))
                                                 : fmt::format("did you mean {}?", nearest);
      fail(ErrorCode::kInvalidArgument, "{}: line {}: {}: no flag of {}; {}", path_, line, key, calledAs(command),
           hint);
    }
    const auto [other, added] = entries_.try_emplace(option, Entry{key, line, value});
    if (!added) {
      const Entry& entry = other->second;
      fail(ErrorCode::kInvalidArgument, "{}: line {}: {}: is the same flag as {} in line {}; remove one", path_,
           std::max(line, entry.line), line > entry.line ? key : entry.key, line > entry.line ? entry.key : key,
           std::min(line, entry.line));
    }
    if (option->check_lname("config")) {
      fail(ErrorCode::kInvalidArgument, "{}: line {}: {}: a configuration file cannot name another one", path_, line,
           key);
    }
    const bool several = option->get_items_expected_max() > 1;
    std::string fault;
    const auto check = [&](const Json& one) {
      if (wordOf(*option, one, fault)) return;
      fail(ErrorCode::kInvalidArgument, "{}: line {}: {}: {}", path_, line, key, fault);
    };
    if (several && value.is_array()) {
      for (const Json& one : value) check(one);
    } else {
      check(value);
    }
  }
}

void ConfigFile::setMissing(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const auto found = entries_.find(option);
    if (found == entries_.end() || option->count() > 0) continue;
    Entry& entry = found->second;
    std::string fault;
    if (entry.value.is_array()) {
      for (const Json& one : entry.value) option->add_result(*wordOf(*option, one, fault));
    } else {
      option->add_result(*wordOf(*option, entry.value, fault));
    }
    if (option->count() == 0) continue;  // an empty list
    entry.used = true;
    try {
      option->run_callback();
    } catch (const CLI::Error& error) {
      throw Error(ErrorCode::kInvalidArgument, withPlaces(error.what()));
    }
  }
}

std::string ConfigFile::placeOf(const CLI::Option& option) const {
  const auto found = entries_.find(&option);
  if (found == entries_.end() || !found->second.used) return "";
  return fmt::format("{}, line {}", path_, found->second.line);
}

std::string ConfigFile::withPlaces(std::string message) const {
  for (const auto& [option, entry] : entries_) {
    if (!entry.used) continue;
    for (const std::string& name : option->get_lnames()) {
      const std::string flag = "--" + name;
      // A message that begins with the flag then begins with the place, as those about the file itself do.
      if (message.starts_with(flag + ":")) {
        message.replace(0, flag.size(), fmt::format("{}: line {}: {}", path_, entry.line, entry.key));
      }
      replaceFlag(message, flag, fmt::format("{} ({}, line {})", entry.key, path_, entry.line));
    }
  }
  return message;
}

}  // namespace chorus
