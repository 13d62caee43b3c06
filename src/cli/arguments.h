// Rewrites the words of a command line into the spelling that the parser expects.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

// Returns the words, without the program's name, with every flag and command in the spelling of its definition: dashes
// and underscores are the same in both. Values, and whatever follows "--", stay as they are. Throws
// Error(kInvalidArgument), one line that names the word, for
//   - a command or flag that is not defined, with the nearest one that is; a flag of another server, with what to use
//     instead,
//   - a command that is missing,
//   - a flag without its value, also where the next word is another flag of the command,
//   - a flag of one value that is given twice.
std::vector<std::string> spelledAsDefined(const CLI::App& app, std::vector<std::string> words);

// The shortest name that begins with `word`; if none does, the nearest one by edit distance (a swap of neighbours is
// one edit); empty when none is near. Dashes and underscores are the same.
std::string nearestName(std::string_view word, const std::vector<std::string>& names);

// Returns advice for a flag of another server that the command lacks: what to use instead. Empty if there is none.
// name: see adviceForOtherServersFlag (cli/other_servers_flags.h).
std::string_view adviceForFlag(const CLI::App& command, std::string_view name);

// A command as it is called, e.g. "chorus bench serve".
std::string calledAs(const CLI::App& command);

}  // namespace chorus
