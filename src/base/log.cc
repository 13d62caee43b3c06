#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include "base/error.h"

namespace chorus {

void initLogging(std::string_view level) {
  constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warning", "error", "off"};
  for (const std::string_view known : kLevels) {
    if (known != level) continue;
    auto logger = std::make_shared<spdlog::logger>("chorus", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    logger->set_level(spdlog::level::from_str(std::string(level)));
    spdlog::set_default_logger(std::move(logger));
    return;
  }
  fail(ErrorCode::kInvalidArgument, "--log_level {}: use trace, debug, info, warning, error or off", level);
}

}  // namespace chorus
