#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <chrono>
#include <ctime>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

template void fmt::detail::vformat_to(buffer<char>&, basic_string_view<char>, basic_format_args<buffer_context<char>>,
                                      locale_ref);

namespace chorus {
namespace {

constexpr size_t kMaxMessageBytes = size_t{16} << 10;

// UTC in ISO 8601: "2026-11-21T20:15:03.120Z".
std::string utc(spdlog::log_clock::time_point time) {
  const std::time_t seconds = spdlog::log_clock::to_time_t(time);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", std::string_view(text, length), millis);
}

class PrintableSink final : public spdlog::sinks::sink {
 public:
  PrintableSink(std::shared_ptr<spdlog::sinks::sink> out, LogFormat format, bool fields)
      : out_(std::move(out)), format_(format), fields_(fields) {}

  void log(const spdlog::details::log_msg& message) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    const bool safe = text.size() <= kMaxMessageBytes && isPrintable(text);
    if (safe && format_ == LogFormat::kText) return out_->log(message);
    std::string line = safe ? std::string(text) : printable(text, kMaxMessageBytes);
    if (format_ == LogFormat::kJson) line = asJson(message, std::move(line));
    spdlog::details::log_msg copy = message;
    copy.payload = line;
    out_->log(copy);
  }
  void flush() override { out_->flush(); }
  void set_pattern(const std::string& pattern) override { out_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    out_->set_formatter(std::move(formatter));
  }

 private:
  std::string asJson(const spdlog::details::log_msg& message, std::string text) const {
    const auto level = spdlog::level::to_string_view(message.level);
    std::string line = fmt::format(R"({{"timestamp":"{}","level":"{}",)", utc(message.time),
                                   std::string_view(level.data(), level.size()));
    if (fields_ && text.size() > 2 && text.front() == '{') return line + text.substr(1);
    return line +
           fmt::format(R"("message":{}}})", Json(std::move(text)).dump(-1, ' ', true, Json::error_handler_t::replace));
  }

  std::shared_ptr<spdlog::sinks::sink> out_;
  const LogFormat format_;
  const bool fields_;
};

}  // namespace

std::shared_ptr<spdlog::logger> makeLogger(std::shared_ptr<spdlog::sinks::sink> sink, LogFormat format, bool fields) {
  auto printable_sink = std::make_shared<PrintableSink>(std::move(sink), format, fields);
  auto logger = std::make_shared<spdlog::logger>("chorus", std::move(printable_sink));
  // ISO 8601: local time with its offset from UTC.
  logger->set_pattern(format == LogFormat::kJson ? "%v" : "%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
  return logger;
}

void initLogging(std::string_view level, LogFormat format) {
  constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warning", "error", "off"};
  for (const std::string_view known : kLevels) {
    if (known != level) continue;
    auto logger = makeLogger(std::make_shared<spdlog::sinks::stderr_color_sink_mt>(), format);
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
