#include "server/openai/responses.h"

#include <ctime>
#include <utility>

#include "server/errors.h"
#include "server/http/http_wire.h"
#include "server/openai/chat_answer.h"
#include "server/openai/log_probs.h"
#include "server/openai/request_json.h"
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
        temperature_(request.chat.options.sampling.temperature.value_or(defaults.temperature)),
        top_p_(request.chat.options.sampling.top_p.value_or(defaults.top_p)),
        placeholder_(randomId("logprobs_")) {}

 protected:
  size_t keepMore(const GenerationDelta& delta) override {
    if (!options().log_probs || delta.log_probs.empty()) return 0;
    const size_t before = log_probs_.size();
    appendLogProbEntries(*model().text, delta.log_probs, log_probs_);
    return log_probs_.size() - before;
  }

  std::string wholeAnswer(Answer answer) override { return withLogProbs(toText(ended(std::move(answer))), log_probs_); }

  void streamBegins() override {
    for (const char* event : {"response.created", "response.in_progress"}) {
      if (!sendResponse(event, response("in_progress", OrderedJson::array()))) return;
    }
  }

  void streamStarts(const GenerationUsage&) override {
    sendEvent("response.output_item.added", {{"output_index", 0}, {"item", item("in_progress", OrderedJson::array())}});
    sendPart("response.content_part.added", {{"part", part("")}});
  }

  bool streamText(const std::string& text) override {
    const auto copies = chargeCopies(2 * (log_probs_.size() - sent_));
    return copies && sendText(text);
  }

  // Each event is written and freed before the next one is made, because each has the whole text. None is made for a
  // client that is gone.
  void streamEnds(const Answer& answer) override {
    // The last tokens may have no text: an end token, or a part of a stop string.
    if (sent_ < log_probs_.size() && !sendText("")) return;
    if (!sendPart("response.output_text.done", {{"text", answer.text}, {"logprobs", placeholder()}}, log_probs_))
      return;
    if (!sendPart("response.content_part.done", {{"part", part(answer.text)}}, log_probs_)) return;
    const char* status = statusOf(answer);
    OrderedJson done = {{"output_index", 0}, {"item", item(status, OrderedJson::array({part(answer.text)}))}};
    if (!sendEvent("response.output_item.done", std::move(done), log_probs_)) return;
    sendResponse(std::string("response.") + status, ended(answer), log_probs_);
  }

  void streamFails(const ApiError& error) override {
    OrderedJson failed = response("failed", OrderedJson::array());
    failed["error"] = {{"code", failureCode(error.status())}, {"message", error.message()}};
    sendResponse("response.failed", std::move(failed));
  }

 private:
  // Sends the text with the log probabilities that no event has had yet.
  bool sendText(const std::string& text) {
    std::string_view unsent = std::string_view(log_probs_).substr(sent_);
    if (unsent.starts_with(',')) unsent.remove_prefix(1);
    sent_ = log_probs_.size();
    return sendPart("response.output_text.delta", {{"delta", text}, {"logprobs", placeholder()}}, unsent);
  }

  static const char* statusOf(const Answer& answer) {
    return answer.finish_reason == "length" ? "incomplete" : "completed";
  }

  // The value of each "logprobs" in JSON values. withLogProbs() puts the list in its place once the JSON is text,
  // because the text of log probabilities takes a tenth of the memory of their JSON values.
  OrderedJson placeholder() const { return options().log_probs ? OrderedJson(placeholder_) : OrderedJson::array(); }

  // list: the elements of the array, separated by commas.
  std::string withLogProbs(std::string json, std::string_view list) const {
    if (!options().log_probs) return json;
    const std::string value = toText(placeholder_);
    std::string text;
    text.reserve(json.size() + list.size());
    size_t begin = 0;
    for (size_t at = 0; (at = json.find(value, begin)) != std::string::npos; begin = at + value.size()) {
      text.append(json, begin, at - begin).append("[").append(list).append("]");
    }
    return text.append(json, begin);
  }

  OrderedJson part(std::string text) const {
    OrderedJson json = OrderedJson::object();
    json["type"] = "output_text";
    json["text"] = std::move(text);
    json["annotations"] = OrderedJson::array();
    json["logprobs"] = placeholder();
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
    json["top_logprobs"] = options().top_log_probs;
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

  // log_probs: the list that replaces the placeholder.
  bool sendEvent(const std::string& type, OrderedJson members, std::string_view log_probs = "") {
    OrderedJson json = OrderedJson::object();
    json["type"] = type;
    json["sequence_number"] = sequence_number_++;
    for (auto& [name, value] : members.items()) json[name] = std::move(value);
    return send(type, withLogProbs(toText(json), log_probs));
  }
  bool sendResponse(const std::string& type, OrderedJson response, std::string_view log_probs = "") {
    OrderedJson members = OrderedJson::object();
    members["response"] = std::move(response);
    return sendEvent(type, std::move(members), log_probs);
  }
  // An event of the answer's only part.
  bool sendPart(const std::string& type, OrderedJson members, std::string_view log_probs = "") {
    OrderedJson all = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    for (auto& [name, value] : members.items()) all[name] = std::move(value);
    return sendEvent(type, std::move(all), log_probs);
  }

  const std::string id_, item_id_;
  const int64_t created_;
  const std::optional<std::string> instructions_;
  const OrderedJson metadata_;
  const std::string tool_choice_;
  const double temperature_, top_p_;
  const std::string placeholder_;  // never sent
  int64_t sequence_number_ = 0;
  std::string log_probs_;  // of all tokens: the elements of a JSON array, separated by commas
  size_t sent_ = 0;        // bytes of log_probs_ that events of a stream had
};

}  // namespace

void handleResponse(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter) {
  ClientCharge memory(request.client);
  ResponseRequest parsed = parseResponseRequest(request.body, meter, memory);
  answerChat(context, request, exchange, meter, parsed.chat, [&](AnswerSetup setup) {
    addCharge(setup.memory, parsed.instructions.value_or("").size() + toText(parsed.metadata).size());
    return std::make_shared<ResponseWriter>(std::move(setup), errorFormFor(request.path, request.id), parsed,
                                            context.defaults);
  });
}

}  // namespace chorus::server
