#include "server/metrics/access_log.h"

#include <fmt/format.h>

#include "base/json.h"

namespace chorus::server {
namespace {

// In ASCII, so that nothing in it needs another escape.
std::string ascii(const OrderedJson& json) { return json.dump(-1, ' ', true, OrderedJson::error_handler_t::replace); }

// The fields of a line, in their order, without those that are not known.
OrderedJson fieldsOf(const AccessLine& line) {
  OrderedJson json = OrderedJson::object();
  json["request_id"] = line.id;
  if (!line.trace_id.empty()) json["trace_id"] = line.trace_id;
  json["method"] = line.method;
  json["route"] = line.route;
  json["status"] = line.status;
  json["client"] = line.client;
  json["bytes"] = line.bytes;
  json["duration_seconds"] = line.seconds;
  json["disconnected"] = line.disconnected;
  if (line.model.empty()) return json;
  json["model"] = line.model;
  if (!line.content_hash.empty()) json["adapter_content_hash"] = line.content_hash;
  json["prompt_tokens"] = line.prompt_tokens;
  json["generated_tokens"] = line.generated_tokens;
  if (line.cached_tokens) json["cached_tokens"] = *line.cached_tokens;
  if (line.queue_seconds) json["queue_seconds"] = *line.queue_seconds;
  if (line.first_token_seconds) json["time_to_first_token_seconds"] = *line.first_token_seconds;
  if (!line.finish_reason.empty()) json["finish_reason"] = line.finish_reason;
  return json;
}

}  // namespace

AccessLog::AccessLog(LogFormat format, std::shared_ptr<spdlog::sinks::sink> sink)
    : format_(format), logger_(makeLogger(std::move(sink), format, true)) {}

void AccessLog::write(const AccessLine& line) {
  const OrderedJson fields = fieldsOf(line);
  if (format_ == LogFormat::kJson) return logger_->info("{}", ascii(fields));
  std::string text = "access";
  for (const auto& [name, value] : fields.items()) text += fmt::format(" {}={}", name, ascii(value));
  logger_->info("{}", text);
}

}  // namespace chorus::server
