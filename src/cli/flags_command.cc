#include "cli/flags_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "cli/arguments.h"
#include "cli/build_flags.h"
#include "cli/evaluation/summarize_flags.h"
#include "cli/nim_variables.h"
#include "cli/print_text.h"
#include "cli/variable_names.h"

namespace chorus {
namespace {

// Variables that replace no flag: name, who reads it, meaning.
constexpr const char* kOtherVariables[][3] = {
    {"XDG_CACHE_HOME", "chorus serve",
     "Its subdirectory chorus keeps the engines built from Hugging Face directories, unless --cache_dir is given"},
    {"HOME", "chorus serve",
     "Its subdirectory .cache/chorus keeps them, unless --cache_dir or XDG_CACHE_HOME is given"},
};

constexpr const char* kIntroduction = R"(# Flags and variables

This page is written by `chorus flags` from the definitions that the program parses, and a test compares the two. After a
change of a flag: `build/release/bin/chorus flags > docs/flags.md`.

Dashes and underscores are the same: `--lora-dir` is `--lora_dir`, `chorus lora_convert` is `chorus lora-convert`. A flag
without values in its row takes none; one of several values (`...`) takes the words up to the next flag, and may be given
several times. `--` ends flags. A variable stands in for a flag that is not given; it gives one value, or several where the
flag's own values are separated by commas. If several variables of a flag are set, NIM's override the one with `CHORUS_`, and
NIM's must have the same value. `chorus serve` also reads flags from a file (`--config`,
[deployment.md](deployment.md#configuration)).

| exit status | means |
|---|---|
| 0 | done |
| 1 | a failure: memory, disk, a port that is taken, a server that does not answer. The same command may succeed later |
| 2 | wrong use, or a file that is not what it should be. The same command is refused again: a supervisor need not restart it (systemd: `RestartPreventExitStatus=2`) |
)";

// Text escaped for a cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|') {
      safe += "\\|";
    } else {
      safe += c == '\n' ? ' ' : c;
    }
  }
  return safe;
}
std::string code(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string codes(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + code(text);
  return all;
}

std::string namesOf(const CLI::Option& option) {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + code(name); };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  if (option.get_positional()) add(option.get_name(true));
  return names;
}

// The values that the option takes: the range or list of its checks, or else its type. CLI11 joins the two as
// TYPE:CHECK.
std::string valuesOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  const std::string kind = type.substr(0, colon);
  std::string values = colon != std::string::npos        ? type.substr(colon + 1)
                       : kind == "INT" || kind == "UINT" ? "whole number"
                       : kind == "FLOAT"                 ? "number"
                                                         : "text";
  if (option.get_items_expected_max() > 1) values += option.get_allow_extra_args() ? " ..." : ", again for each";
  return values;
}

std::string rowOf(const CLI::Option& option) {
  const std::string preset = option.get_required() ? "required" : code(option.get_default_str());
  return fmt::format("| {} | {} | {} | {} | {} |\n", namesOf(option), cell(valuesOf(option)), preset,
                     codes(variablesOf(option)), cell(option.get_description()));
}

void addCommand(CLI::App& command, std::string& page) {
  if (command.get_group().empty()) return;
  for (CLI::App* sub : command.get_subcommands(nullptr)) addCommand(*sub, page);
  if (!command.get_subcommands(nullptr).empty()) return;
  page += fmt::format("\n## {}\n\n{}.\n\n| flag | values | default | variable | |\n|---|---|---|---|---|\n",
                      calledAs(command), cell(command.get_description()));
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() || option->get_group().empty()) continue;
    page += rowOf(*option);
  }
}

// Flags that a command takes from a table of another program's flags; CLI11 does not list them. accepted: the word for
// flags that are not refused.
void addForeignFlags(const char* title, const char* introduction, const char* accepted,
                     std::span<const ForeignFlag> flags, std::string& page) {
  page += fmt::format("\n### {}\n\n{} *Refused*: an error.\n\n| flag | values | | |\n|---|---|---|---|\n", title,
                      introduction);
  for (const ForeignFlag& flag : flags) {
    page += fmt::format("| {} | {} | {} | {} |\n", code("--" + std::string(flag.name)), cell(std::string(flag.values)),
                        flag.fate == FlagFate::kAccepted ? accepted : "refused", cell(std::string(flag.note)));
  }
}

void addForeignFlagsOf(const std::string& command, std::string& page) {
  if (command == "build") {
    addForeignFlags("Further flags of trtllm-build",
                    "chorus build takes them too. *Recorded*: the value is checked and stored in the engine's "
                    "configuration.",
                    "recorded", buildFlags(), page);
  }
  if (command == "summarize") {
    addForeignFlags("Further flags of summarize.py",
                    "chorus summarize takes them too. *Accepted*: the value is checked and has no effect.", "accepted",
                    summarizeFlags(), page);
  }
}

struct Variable {
  std::vector<std::string> names;
  std::string commands, flags, description;
};

constexpr const char* kNimIntroduction = R"(
### Variables of NVIDIA NIM

`chorus serve` knows the variables of NIM's containers of language models. One stands in for a flag (`NIM_SSL_MODE` says whether
those of TLS do); has *no effect*, which a line
of the log says at start; or is *refused*: it asks for something that this server does not do, and any value but those in
parentheses ends the start with an error that names it. An unknown variable that begins with `NIM_` gets a warning.

| variable | | |
|---|---|---|
)";

void addNimTable(std::string& page) {
  page += kNimIntroduction;
  for (const NimVariable& variable : nimVariables()) {
    std::string fate = "no effect";
    if (variable.fate == NimFate::kFlag) fate = code("--" + std::string(variable.flag));
    if (variable.fate == NimFate::kMode) fate = "mode";
    if (variable.fate == NimFate::kRefused) {
      fate = "refused";
      std::string allowed(variable.off);
      for (size_t bar = 0; (bar = allowed.find('|', bar)) != std::string::npos;) allowed.replace(bar, 1, "`, `");
      if (!allowed.empty()) fate += " (`" + allowed + "`)";
    }
    page += fmt::format("| {} | {} | {} |\n", code(std::string(variable.name)), fate, cell(std::string(variable.note)));
  }
}

// Collects the variables of all commands in the order in which they first occur.
void addVariables(const CLI::App& command, std::vector<Variable>& variables) {
  for (const CLI::App* sub : command.get_subcommands(nullptr)) addVariables(*sub, variables);
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string> names = variablesOf(*option);
    if (names.empty()) continue;
    const auto known =
        std::find_if(variables.begin(), variables.end(), [&](const Variable& v) { return v.names == names; });
    if (known == variables.end()) {
      variables.push_back({names, calledAs(command), namesOf(*option), option->get_description()});
    } else {
      known->commands += ", " + calledAs(command);
    }
  }
}

}  // namespace

std::string flagsPage(CLI::App& app) {
  std::string page = kIntroduction;
  page += "\n## Variables\n\n| variable | read by | stands in for | |\n|---|---|---|---|\n";
  std::vector<Variable> variables;
  addVariables(app, variables);
  for (const auto& [name, command, description] : kOtherVariables)
    variables.push_back({{name}, command, "", description});
  for (const Variable& variable : variables) {
    page += fmt::format("| {} | {} | {} | {} |\n", codes(variable.names), variable.commands, variable.flags,
                        cell(variable.description));
  }
  addNimTable(page);
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    addCommand(*command, page);
    addForeignFlagsOf(command->get_name(), page);
  }
  return page;
}

void addFlagsCommand(CLI::App& app) {
  app.add_subcommand("flags", "Write docs/flags.md to standard output")->group("")->callback([&app] {
    printText(flagsPage(app));
  });
}

}  // namespace chorus
