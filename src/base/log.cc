#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

template void fmt::detail::vformat_to(buffer<char>&, basic_string_view<char>, basic_format_args<buffer_context<char>>,
                                      locale_ref);

namespace chorus {
namespace {

constexpr size_t kMaxMessageBytes = size_t{16} << 10;

class PrintableSink final : public spdlog::sinks::sink {
 public:
  explicit PrintableSink(std::shared_ptr<spdlog::sinks::sink> out) : out_(std::move(out)) {}

  void log(const spdlog::details::log_msg& message) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    if (text.size() <= kMaxMessageBytes && isPrintable(text)) return out_->log(message);
    const std::string safe = printable(text, kMaxMessageBytes);
    spdlog::details::log_msg copy = message;
    copy.payload = safe;
    out_->log(copy);
  }
  void flush() override { out_->flush(); }
  void set_pattern(const std::string& pattern) override { out_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    out_->set_formatter(std::move(formatter));
  }

 private:
  std::shared_ptr<spdlog::sinks::sink> out_;
};

}  // namespace

std::shared_ptr<spdlog::logger> makeLogger(std::shared_ptr<spdlog::sinks::sink> sink) {
  auto logger = std::make_shared<spdlog::logger>("chorus", std::make_shared<PrintableSink>(std::move(sink)));
  // ISO 8601: local time with its offset from UTC.
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
  return logger;
}

void initLogging(std::string_view level) {
  constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warning", "error", "off"};
  for (const std::string_view known : kLevels) {
    if (known != level) continue;
    auto logger = makeLogger(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_level(spdlog::level::from_str(std::string(level)));
    spdlog::set_default_logger(std::move(logger));
    return;
  }
  fail(ErrorCode::kInvalidArgument, "--log_level {}: use trace, debug, info, warning, error or off", level);
}

void infoLines(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    log::info("{}", text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace chorus
