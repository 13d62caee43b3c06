#include "cli/flags_page.h"

#include <fmt/format.h>

namespace chorus {
namespace {

constexpr const char* kIntroduction = R"(# Flags and variables

This page is written by `chorus flags` from the definitions that the program parses, and a test compares the two. After a
change of a flag: `scripts/generated_pages.py`. `man chorus` has the same lists.

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
      safe += c;
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

constexpr const char* kNimIntroduction = R"(
### Variables of NVIDIA NIM

`chorus serve` knows the variables of NIM's containers of language models. One stands in for a flag (`NIM_SSL_MODE` says whether
those of TLS do); has *no effect*, which a line
of the log says at start; or is *refused*: it asks for something that this server does not do, and any value but those in
parentheses ends the start with an error that names it. An unknown variable that begins with `NIM_` gets a warning.

| variable | | |
|---|---|---|
)";

std::string nimTable() {
  std::string table = kNimIntroduction;
  for (const NimVariable& variable : nimVariables()) {
    table += fmt::format("| {} | {} | {} |\n", code(std::string(variable.name)), nimFateText(variable, "`", "`"),
                         cell(std::string(variable.note)));
  }
  return table;
}

std::string foreignTable(const ForeignFlagEntries& foreign) {
  std::string table =
      fmt::format("\n### {}\n\n{}\n\n| flag | values | | |\n|---|---|---|---|\n", foreign.title, foreign.introduction);
  for (const ForeignFlag& flag : foreign.flags) {
    table += fmt::format("| {} | {} | {} | {} |\n", code("--" + std::string(flag.name)), cell(std::string(flag.values)),
                         flag.fate == FlagFate::kAccepted ? foreign.accepted : "refused", cell(std::string(flag.note)));
  }
  return table;
}

}  // namespace

std::string flagsPage(const FlagReference& reference) {
  std::string page = kIntroduction;
  page += "\n## Variables\n\n| variable | read by | stands in for | |\n|---|---|---|---|\n";
  for (const VariableEntry& variable : reference.variables) {
    page += fmt::format("| {} | {} | {} | {} |\n", codes(variable.names), variable.commands, codes(variable.flags),
                        cell(variable.description));
  }
  page += nimTable();
  for (const CommandEntry& command : reference.commands) {
    page += fmt::format("\n## {}\n\n{}.\n\n| flag | values | default | variable | |\n|---|---|---|---|---|\n",
                        command.name, cell(command.description));
    for (const FlagEntry& flag : command.flags) {
      page +=
          fmt::format("| {} | {} | {} | {} | {} |\n", codes(flag.names), cell(flag.values),
                      flag.required ? "required" : code(flag.preset), codes(flag.variables), cell(flag.description));
    }
    if (command.foreign) page += foreignTable(*command.foreign);
  }
  return page;
}

}  // namespace chorus
