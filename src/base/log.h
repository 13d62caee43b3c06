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

// A logger with the project's line format that writes to `sink`. Each message becomes one printable line
// (base/printable.h) of at most 16 KB, so text from a file, a client or a library never reaches a terminal unescaped.
std::shared_ptr<spdlog::logger> makeLogger(std::shared_ptr<spdlog::sinks::sink> sink);

// Logs a text of several lines, such as a table, with one message per line.
void infoLines(std::string_view text);

}  // namespace chorus
