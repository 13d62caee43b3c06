// The text that a server logs at start: every flag's value and where it comes from.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace chorus {

class ConfigFile;

// Returns a heading and one line for each flag of the command, in the order of definition: name, value and source,
// which is "flag", the name of a variable, a place in the file, or "default". Values of secret flags (markSecret) are
// replaced by "(hidden)". Every value is printable and at most 512 bytes long. Call it after parsing.
std::string effectiveConfiguration(const CLI::App& command, const ConfigFile& file, std::span<const char* const> args);

}  // namespace chorus
