// Logging: spdlog to stderr. Levels: trace, debug, info, warning, error, off.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string_view>

#include "base/format.h"

namespace chorus {

namespace log = spdlog;

// Sends the default logger to stderr with the project's line format. Throws Error on an unknown level.
void initLogging(std::string_view level);

// A logger of the project's line format that writes to the sink. Each message becomes one printable line
// (base/printable.h) of at most 16 KB: nothing that a file, a client or a library says reaches a terminal unescaped.
std::shared_ptr<spdlog::logger> makeLogger(std::shared_ptr<spdlog::sinks::sink> sink);

// Logs a text of several lines, a table say, one message for each line.
void infoLines(std::string_view text);

}  // namespace chorus
