// Logging: spdlog to stderr. Levels: trace, debug, info, warning, error, off.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string_view>

#include "base/format.h"

namespace chorus {

namespace log = spdlog;

enum class LogFormat {
  kText,  // time, level, message
  kJson,  // an object per line: timestamp (UTC), level, message
};

// Sends the default logger to stderr. Throws Error on an unknown level.
void initLogging(std::string_view level, LogFormat format = LogFormat::kText);

// A logger that writes to `sink` in the project's line format. Each message becomes one printable line
// (base/printable.h) of at most 16 KB, so text from a file, a client or a library never reaches a terminal unescaped.
// fields: each message is a JSON object; as kJson its members take the place of "message".
std::shared_ptr<spdlog::logger> makeLogger(std::shared_ptr<spdlog::sinks::sink> sink,
                                           LogFormat format = LogFormat::kText, bool fields = false);

// Logs a text of several lines, such as a table, with one message per line.
void infoLines(std::string_view text);

}  // namespace chorus
