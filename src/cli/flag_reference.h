// Every command, flag and variable of the program, taken from the parser's own definitions, for the pages that list
// them (cli/flags_page.h, cli/man_page.h).
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/foreign_flags.h"
#include "cli/nim_variables.h"

namespace chorus {

struct FlagEntry {
  std::vector<std::string> names;  // with dashes, short ones first; the name of a positional argument
  std::string values;              // range, list or kind; empty: the flag takes none
  bool required = false;
  std::string preset;  // default; may be empty
  std::vector<std::string> variables;
  std::string description;
};

// Flags that a command takes from a table of another program's flags.
struct ForeignFlagEntries {
  std::string title, introduction;
  std::string accepted;  // the word for flags that are not refused
  std::span<const ForeignFlag> flags;
};

struct CommandEntry {
  std::string name;         // as it is called: "chorus bench serve"
  std::string description;  // one line of sentences, without the last period
  std::vector<FlagEntry> flags;
  std::optional<ForeignFlagEntries> foreign;
};

struct VariableEntry {
  std::vector<std::string> names;
  std::string commands;            // that read it
  std::vector<std::string> flags;  // names of the flag that it stands in for; empty: none
  std::string description;
};

struct FlagReference {
  std::vector<CommandEntry> commands;    // those without subcommands
  std::vector<VariableEntry> variables;  // in the order in which they first occur
};

// Returns the reference of the program's flags, which is the same on every machine. It leaves out --help and the
// commands and flags that --help does not list.
FlagReference flagReferenceOf(CLI::App& app);

// Returns a text about what happens to a variable of NIM, e.g. "refused (`0`)". open, close: the marks around code in
// the page's language.
std::string nimFateText(const NimVariable& variable, std::string_view open, std::string_view close);

}  // namespace chorus
