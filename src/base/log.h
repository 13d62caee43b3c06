// Logging: spdlog to stderr. Levels: trace, debug, info, warning, error, off.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace chorus {

namespace log = spdlog;

// Sends the default logger to stderr with the project's line format. Throws Error on an unknown level.
void initLogging(std::string_view level);

}  // namespace chorus
