#include "cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "cli/other_servers_flags.h"

namespace chorus {
namespace {

// Names are compared in this spelling.
std::string folded(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// Number of insertions, removals, changes and swaps of neighbours that turn a into b (optimal string alignment).
size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

struct LongFlag {
  std::string name;   // without dashes
  std::string value;  // from "=" on; empty without one
};

// Splits a word that begins with two dashes like the parser.
LongFlag splitLong(const std::string& word) {
  const size_t equals = std::min(word.find('='), word.size());
  return {word.substr(2, equals - 2), word.substr(equals)};
}

bool isLong(const std::string& word) { return word.size() > 2 && word.starts_with("--") && word[2] != '-'; }
// A word such as -1 is a value, not a flag.
bool isShort(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

const CLI::Option* findLong(const CLI::App& command, const std::string& name, std::string& defined) {
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) {
      if (folded(known) != folded(name)) continue;
      defined = known;
      return option;
    }
  }
  return nullptr;
}

const CLI::Option* findShort(const CLI::App& command, char name) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->check_sname(std::string(1, name))) return option;
  }
  return nullptr;
}

const CLI::App* findCommand(const CLI::App& command, const std::string& word) {
  for (const CLI::App* sub : command.get_subcommands(nullptr)) {
    if (folded(sub->get_name()) == folded(word)) return sub;
  }
  return nullptr;
}

[[noreturn]] void failUnknownFlag(const CLI::App& command, const std::string& flag) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  const std::string called = calledAs(command);
  const std::string_view advice = adviceForFlag(command, flag.starts_with("--") ? flag.substr(2) : flag);
  if (!advice.empty()) fail(ErrorCode::kInvalidArgument, "{}: no flag of {}; {}", flag, called, advice);
  const std::string nearest = nearestName(flag.substr(flag.find_first_not_of('-')), names);
  if (nearest.empty())
    fail(ErrorCode::kInvalidArgument, "{}: no flag of {}; {} --help lists them", flag, called, called);
  fail(ErrorCode::kInvalidArgument, "{}: no flag of {}; did you mean --{}?", flag, called, nearest);
}

[[noreturn]] void failUnknownCommand(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands(nullptr)) {
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  }
  const std::string called = calledAs(command), nearest = nearestName(word, names);
  if (nearest.empty())
    fail(ErrorCode::kInvalidArgument, "{}: no command of {}; {} --help lists them", word, called, called);
  fail(ErrorCode::kInvalidArgument, "{}: no command of {}; did you mean {}?", word, called, nearest);
}

// Walks over the words in the order of the parser.
class Speller {
 public:
  Speller(const CLI::App& app, std::vector<std::string> words) : command_(&app), words_(std::move(words)) {}

  std::vector<std::string> spell() {
    while (at_ < words_.size() && words_[at_] != "--") {
      std::string& word = words_[at_];
      if (isLong(word)) {
        spellLong(word);
      } else if (isShort(word)) {
        const CLI::Option* option = findShort(*command_, word[1]);
        if (option == nullptr) failUnknownFlag(*command_, word);
        ++at_;
        passValues(*option, word.substr(0, 2), word.size() > 2);
      } else {
        spellCommand(word);
      }
    }
    // The user requested help or the version.
    const bool asked = !given_.empty();
    if (at_ == words_.size() && !asked && command_->get_require_subcommand_min() > 0) {
      const std::string called = calledAs(*command_);
      fail(ErrorCode::kInvalidArgument, "{} needs a command; {} --help lists them", called, called);
    }
    return std::move(words_);
  }

 private:
  void spellLong(std::string& word) {
    const LongFlag flag = splitLong(word);
    std::string defined;
    const CLI::Option* option = findLong(*command_, flag.name, defined);
    if (option == nullptr) failUnknownFlag(*command_, "--" + flag.name);
    const std::string name = "--" + defined;
    if (flag.value == "=") fail(ErrorCode::kInvalidArgument, "{} needs a value", name);
    word = name + flag.value;
    ++at_;
    passValues(*option, name, !flag.value.empty());
  }

  void spellCommand(std::string& word) {
    const bool has_commands = !command_->get_subcommands(nullptr).empty();
    if (has_commands) {
      const CLI::App* found = findCommand(*command_, word);
      if (found == nullptr) failUnknownCommand(*command_, word);
      word = found->get_name();
      command_ = found;
      given_.clear();
    }
    ++at_;
  }

  // Skips a flag's required values, which the parser takes whatever they look like.
  void passValues(const CLI::Option& option, const std::string& name, bool has_value) {
    const bool once = option.get_items_expected_max() == 1;
    if (!given_.insert(&option).second && once) fail(ErrorCode::kInvalidArgument, "{} is given twice", name);
    const int needed = std::min(option.get_type_size_min(), option.get_items_expected_min());
    for (int i = has_value ? 1 : 0; i < needed; ++i, ++at_) {
      if (at_ == words_.size()) fail(ErrorCode::kInvalidArgument, "{} needs a value", name);
      const std::string& value = words_[at_];
      std::string flag;
      if (isLong(value) && findLong(*command_, splitLong(value).name, flag) != nullptr) {
        fail(ErrorCode::kInvalidArgument, "{} needs a value, and {} is a flag; write {}={} if it is the value", name,
             value, name, value);
      }
    }
  }

  const CLI::App* command_;
  std::vector<std::string> words_;
  size_t at_ = 0;
  std::set<const CLI::Option*> given_;
};

}  // namespace

std::string nearestName(std::string_view word, const std::vector<std::string>& names) {
  const std::string given = folded(word);
  const size_t most_edits = given.size() < 6 ? 1 : given.size() < 9 ? 2 : 3;
  std::string nearest, begun;
  size_t least = most_edits + 1;
  for (const std::string& name : names) {
    const std::string known = folded(name);
    const size_t longer = std::max(known.size(), given.size()), shorter = std::min(known.size(), given.size());
    const bool is_begun = given.size() >= 3 && known.starts_with(given);
    if (is_begun && (begun.empty() || name.size() < begun.size())) begun = name;
    if (longer - shorter >= least) continue;
    const size_t edits = editDistance(given, known);
    if (edits >= least) continue;
    least = edits;
    nearest = name;
  }
  return begun.empty() ? nearest : begun;
}

std::string_view adviceForFlag(const CLI::App& command, std::string_view name) {
  return calledAs(command) == "chorus serve" ? adviceForOtherServersFlag(name) : std::string_view();
}

std::string calledAs(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? "chorus" : calledAs(*parent) + " " + command.get_name();
}

std::vector<std::string> spelledAsDefined(const CLI::App& app, std::vector<std::string> words) {
  return Speller(app, std::move(words)).spell();
}

}  // namespace chorus
