#include "server/openai/responses.h"

#include <ctime>
#include <utility>

#include "server/errors.h"
#include "server/http/http_wire.h"
#include "server/openai/chat_answer.h"
#include "server/openai/response_request.h"
#include "server/openai/text_answer_writer.h"

namespace chorus::server {
namespace {

// The code of a failed response, one of those that OpenAI's clients know.
const char* failureCode(int status) {
  if (status == 429) return "rate_limit_exceeded";
  return status < 500 ? "invalid_prompt" : "server_error";
}

OrderedJson responseUsage(const GenerationUsage& usage) {
  OrderedJson json = OrderedJson::object();
  json["input_tokens"] = usage.prompt_tokens;
  json["input_tokens_details"] = {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}};
  json["output_tokens"] = usage.completion_tokens;
  json["output_tokens_details"] = {{"reasoning_tokens", 0}};
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  return json;
}

class ResponseWriter : public TextAnswerWriter {
 public:
  // request: only what the answer repeats.
  ResponseWriter(AnswerSetup setup, ErrorForm form, const ResponseRequest& request, const GenerationDefaults& defaults)
      : TextAnswerWriter(std::move(setup), std::move(form), true),
        id_(randomId("resp_")),
        item_id_(randomId("msg_")),
        created_(std::time(nullptr)),
        instructions_(request.instructions),
        metadata_(request.metadata),
        tool_choice_(request.tool_choice),
        temperature_(options().sampling.temperature.value_or(defaults.temperature)),
        top_p_(options().sampling.top_p.value_or(defaults.top_p)) {}

 protected:
  OrderedJson wholeAnswer(Answer answer) override { return ended(std::move(answer)); }

  void streamBegins() override {
    sendResponse("response.created", response("in_progress", OrderedJson::array()));
    sendResponse("response.in_progress", response("in_progress", OrderedJson::array()));
  }

  void streamStarts(const GenerationUsage&) override {
    sendEvent("response.output_item.added", {{"output_index", 0}, {"item", item("in_progress", OrderedJson::array())}});
    sendPart("response.content_part.added", {{"part", part("")}});
  }

  bool streamText(const std::string& text) override {
    return sendPart("response.output_text.delta", {{"delta", text}, {"logprobs", OrderedJson::array()}});
  }

  // Each event is written and freed before the next one is made, because each has the whole text.
  void streamEnds(const Answer& answer) override {
    sendPart("response.output_text.done", {{"text", answer.text}, {"logprobs", OrderedJson::array()}});
    sendPart("response.content_part.done", {{"part", part(answer.text)}});
    const char* status = statusOf(answer);
    sendEvent("response.output_item.done",
              {{"output_index", 0}, {"item", item(status, OrderedJson::array({part(answer.text)}))}});
    sendResponse(std::string("response.") + status, ended(answer));
  }

  void streamFails(const ApiError& error) override {
    OrderedJson failed = response("failed", OrderedJson::array());
    failed["error"] = {{"code", failureCode(error.status())}, {"message", error.message()}};
    sendResponse("response.failed", std::move(failed));
  }

 private:
  static const char* statusOf(const Answer& answer) {
    return answer.finish_reason == "length" ? "incomplete" : "completed";
  }

  static OrderedJson part(std::string text) {
    OrderedJson json = OrderedJson::object();
    json["type"] = "output_text";
    json["text"] = std::move(text);
    json["annotations"] = OrderedJson::array();
    json["logprobs"] = OrderedJson::array();
    return json;
  }

  OrderedJson item(const char* status, OrderedJson content) const {
    OrderedJson json = OrderedJson::object();
    json["id"] = item_id_;
    json["type"] = "message";
    json["status"] = status;
    json["role"] = "assistant";
    json["content"] = std::move(content);
    return json;
  }

  OrderedJson response(const char* status, OrderedJson output) const {
    const auto& most = options().max_tokens;
    OrderedJson json = OrderedJson::object();
    json["id"] = id_;
    json["object"] = "response";
    json["created_at"] = created_;
    json["status"] = status;
    json["background"] = false;
    json["completed_at"] = nullptr;
    json["error"] = nullptr;
    json["incomplete_details"] = nullptr;
    json["instructions"] = instructions_ ? OrderedJson(*instructions_) : OrderedJson();
    json["max_output_tokens"] = most ? OrderedJson(*most) : OrderedJson();
    json["model"] = model().name;
    json["output"] = std::move(output);
    json["parallel_tool_calls"] = true;
    json["previous_response_id"] = nullptr;
    json["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
    json["store"] = false;
    json["temperature"] = temperature_;
    json["text"] = {{"format", {{"type", "text"}}}};
    json["tool_choice"] = tool_choice_;
    json["tools"] = OrderedJson::array();
    json["top_logprobs"] = 0;
    json["top_p"] = top_p_;
    json["truncation"] = "disabled";
    json["usage"] = nullptr;
    json["metadata"] = metadata_;
    return json;
  }

  OrderedJson ended(Answer answer) const {
    const char* status = statusOf(answer);
    OrderedJson json =
        response(status, OrderedJson::array({item(status, OrderedJson::array({part(std::move(answer.text))}))}));
    json["usage"] = responseUsage(answer.usage);
    if (answer.finish_reason == "length") {
      json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    } else {
      json["completed_at"] = std::time(nullptr);
    }
    return json;
  }

  bool sendEvent(const std::string& type, OrderedJson members) {
    OrderedJson json = OrderedJson::object();
    json["type"] = type;
    json["sequence_number"] = sequence_number_++;
    for (auto& [name, value] : members.items()) json[name] = std::move(value);
    return send(type, json);
  }
  void sendResponse(const std::string& type, OrderedJson response) {
    OrderedJson members = OrderedJson::object();
    members["response"] = std::move(response);
    sendEvent(type, std::move(members));
  }
  // An event of the answer's only part.
  bool sendPart(const std::string& type, OrderedJson members) {
    OrderedJson all = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    for (auto& [name, value] : members.items()) all[name] = std::move(value);
    return sendEvent(type, std::move(all));
  }

  const std::string id_, item_id_;
  const int64_t created_;
  const std::optional<std::string> instructions_;
  const OrderedJson metadata_;
  const std::string tool_choice_;
  const double temperature_, top_p_;
  int64_t sequence_number_ = 0;
};

}  // namespace

void handleResponse(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter) {
  ClientCharge memory(request.client);
  const ResponseRequest parsed = parseResponseRequest(request.body, meter, memory);
  answerChat(context, request, exchange, meter, parsed.chat, [&](AnswerSetup setup) {
    return std::make_shared<ResponseWriter>(std::move(setup), errorFormFor(request.path, request.id), parsed,
                                            context.defaults);
  });
}

}  // namespace chorus::server
