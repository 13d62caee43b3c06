#include "cli/man_page.h"

#include <fmt/format.h>

#include <string_view>

namespace chorus {
namespace {

constexpr const char* kRevised = "2026-11-26";  // change it with the texts of this file

// Text that roff prints as it is.
std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '\\':
        safe += "\\e";
        break;
      case '-':
        safe += "\\-";
        break;
      case '\'':
        safe += "\\(aq";
        break;
      case '`':
        safe += "\\(ga";
        break;
      case '^':
        safe += "\\(ha";
        break;
      case '~':
        safe += "\\(ti";
        break;
      case '"':
        safe += "\\(dq";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string bold(std::string_view text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escaped(text) + "\\fR"; }

std::string bolds(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + bold(text);
  return all;
}

// Escaped text in lines of at most 78 bytes where blanks allow it. No line begins with a control character.
std::string filled(std::string_view text) {
  constexpr size_t kWidth = 78;
  std::string page, line;
  const auto endLine = [&] {
    if (line.starts_with('.') || line.starts_with('\'')) page += "\\&";
    page += line + "\n";
    line.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) {
      if (!line.empty() && line.size() + 1 + end > kWidth) endLine();
      line += (line.empty() ? "" : " ") + std::string(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!line.empty()) endLine();
  return page;
}

std::string sentence(const std::string& text) { return text.empty() || text.ends_with('.') ? text : text + "."; }

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

// A tagged paragraph: `tag` and `body` are escaped.
std::string tagged(const std::string& tag, const std::string& body) {
  return ".TP\n" + tag + "\n" + (body.empty() ? "\\&\n" : filled(body));
}

std::string section(std::string_view title) { return fmt::format(".SH {}\n", escaped(title)); }
std::string subsection(std::string_view title) { return fmt::format(".SS {}\n", escaped(title)); }

std::string flagOf(const FlagEntry& flag) {
  std::string tag = bolds(flag.names);
  if (!flag.values.empty()) tag += " " + italic(flag.values);
  std::string body = escaped(sentence(flag.description));
  if (flag.required) body += " Required.";
  if (!flag.required && !flag.preset.empty()) body += fmt::format(" Default: {}.", bold(flag.preset));
  if (!flag.variables.empty()) body += fmt::format(" Variable: {}.", bolds(flag.variables));
  return tagged(tag, body);
}

std::string foreignFlagsOf(const ForeignFlagEntries& foreign) {
  std::string text = subsection(foreign.title);
  std::string introduction;  // without the stars of Markdown
  for (const char c : foreign.introduction) {
    if (c != '*') introduction += c;
  }
  text += filled(escaped(introduction));
  for (const ForeignFlag& flag : foreign.flags) {
    const bool accepted = flag.fate == FlagFate::kAccepted;
    std::string body = accepted ? foreign.accepted : "refused";
    if (!flag.note.empty()) body += fmt::format(": {}", flag.note);
    text +=
        tagged(bold("--" + std::string(flag.name)) + " " + italic(flag.values), escaped(sentence(capitalised(body))));
  }
  return text;
}

std::string commandOf(const CommandEntry& command) {
  std::string text = subsection(command.name) + filled(escaped(sentence(command.description)));
  for (const FlagEntry& flag : command.flags) text += flagOf(flag);
  if (command.foreign) text += foreignFlagsOf(*command.foreign);
  return text;
}

std::string environmentOf(const FlagReference& reference) {
  std::string text = section("ENVIRONMENT");
  text += filled(
      "A variable stands in for a flag that is not given. It gives one value, or several where the flag\\(aqs own "
      "values "
      "are separated by commas.");
  for (const VariableEntry& variable : reference.variables) {
    std::string body = escaped(sentence(variable.description));
    body += fmt::format(" Read by {}", bold(variable.commands));
    if (!variable.flags.empty()) body += fmt::format(" in place of {}", bolds(variable.flags));
    text += tagged(bolds(variable.names), body + ".");
  }
  text += subsection("Variables of NVIDIA NIM");
  text += filled(
      "Each variable of NIM\\(aqs containers of language models stands in for a flag of \\fBchorus serve\\fR, has no "
      "effect, which a line of the log says at start, or is refused: any value but those in parentheses ends the start "
      "with an error that names it.");
  for (const NimVariable& variable : nimVariables()) {
    std::string body = nimFateText(variable, "", "");
    if (variable.fate == NimFate::kFlag) body.insert(0, "stands in for ");
    if (!variable.note.empty()) body += fmt::format(": {}", variable.note);
    text += tagged(bold(variable.name), escaped(sentence(capitalised(body))));
  }
  return text;
}

std::string exitStatus() {
  return section("EXIT STATUS") + tagged(bold("0"), "Done.") +
         tagged(bold("1"),
                "A failure: memory, disk, a port that is taken, a server that does not answer. The same command may "
                "succeed later.") +
         tagged(bold("2"), "Wrong use, or a file that is not what it should be. The same command is refused again.");
}

std::string examples() {
  std::string text;
  for (const auto& [what, command] :
       {std::pair{"Serve a Hugging Face directory and all adapters below another one:",
                  "chorus serve MODEL --lora_dir ADAPTERS"},
        std::pair{"Say what a file or directory is, and whether it can be served:", "chorus inspect PATH"},
        std::pair{"Send 64 streams at a time to all adapters of a server, and compare every answer with the answer to "
                  "the same request when it was alone:",
                  "chorus bench serve --url http://127.0.0.1:8000 --adapters all --streams 64 --verify"}}) {
    text += filled(escaped(what)) + ".PP\n.in +4n\n.nf\n" + escaped(command) + "\n.fi\n.in\n.PP\n";
  }
  text.erase(text.rfind(".PP\n"));  // no paragraph follows the last example
  return section("EXAMPLES") + text;
}

}  // namespace

std::string manPage(const FlagReference& reference) {
  std::string page =
      "."
      "\\\" Written by scripts/generated_pages.py from the definitions that the program parses.\n";
  page += fmt::format(".TH CHORUS 1 {} \"chorus {}\" \"User Commands\"\n", kRevised, CHORUS_VERSION);
  page += section("NAME") + "chorus \\- serve one language model with many LoRA adapters\n";
  page += section("SYNOPSIS") +
          "\\fBchorus\\fR \\fICOMMAND\\fR [\\fIFLAG\\fR ...]\n.br\n\\fBchorus\\fR [\\fICOMMAND\\fR] " + bold("--help") +
          "\n.br\n\\fBchorus\\fR " + bold("--version") + "\n";
  page += section("DESCRIPTION");
  page += filled(escaped(
      "Chorus serves one large language model with any number of LoRA adapters over OpenAI's HTTP API on ordinary "
      "processors. Requests for different adapters share every batch. The commands also convert models to TensorRT-LLM "
      "checkpoints, build engines from them, inspect, run, score and measure them."));
  page += ".PP\n";
  page += filled(escaped(
      "Dashes and underscores are the same: --lora-dir is --lora_dir. A flag without values in this page takes none; "
      "one "
      "of several values (...) takes the words up to the next flag, and may be given several times. -- ends flags."));
  page += section("COMMANDS");
  for (const CommandEntry& command : reference.commands) page += commandOf(command);
  page += environmentOf(reference) + exitStatus() + examples();
  page += section("SEE ALSO") + filled(
                                    "The pages of the source directory \\fIdocs\\fR, which packages install below "
                                    "\\fI/usr/share/doc/chorus\\fR.");
  return page;
}

}  // namespace chorus
