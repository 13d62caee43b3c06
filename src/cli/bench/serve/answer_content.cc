#include "cli/bench/serve/answer_content.h"

#include "base/error.h"

namespace chorus {
namespace {

// Null when `object` has no such key.
const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

void appendText(const Json& value, std::string& text) {
  if (value.is_string()) text += value.get_ref<const std::string&>();
}

}  // namespace

void AnswerContent::addChoice(const Json& choice) {
  const Json& index = member(choice, "index");
  Choice& kept = choices_[index.is_number_unsigned() ? index.get<uint64_t>() : 0];
  appendText(member(choice, "text"), kept.text);
  appendText(member(member(choice, "delta"), "content"), kept.text);
  if (const Json& reason = member(choice, "finish_reason"); !reason.is_null()) kept.finish_reason = reason;
  if (const Json& reason = member(choice, "stop_reason"); !reason.is_null()) kept.stop_reason = reason;
  const Json& log_probabilities = member(choice, "logprobs");
  if (!log_probabilities.is_object()) return;
  for (const auto& [key, values] : log_probabilities.items()) {
    if (!values.is_array()) continue;
    Json& all = kept.log_probabilities[key];
    if (all.is_null()) all = Json::array();
    all.insert(all.end(), values.begin(), values.end());
  }
}

void AnswerContent::add(const Json& chunk, size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > kMostBytes) fail(ErrorCode::kTooLarge, "an answer is beyond {} bytes", kMostBytes);
  if (const Json& print = member(chunk, "system_fingerprint"); print.is_string()) fingerprint_ = print;
  if (const Json& choices = member(chunk, "choices"); choices.is_array()) {
    for (const Json& choice : choices) addChoice(choice);
  }
  for (const char* key : {"prompt_tokens", "completion_tokens", "total_tokens"}) {
    if (const Json& count = member(member(chunk, "usage"), key); !count.is_null()) usage_[key] = count;
  }
}

std::string AnswerContent::canonical() const {
  Json choices = Json::array();
  for (const auto& [index, choice] : choices_) {
    choices.push_back({{"index", index},
                       {"text", choice.text},
                       {"logprobs", choice.log_probabilities},
                       {"finish_reason", choice.finish_reason},
                       {"stop_reason", choice.stop_reason}});
  }
  return Json{{"choices", std::move(choices)}, {"usage", usage_}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace chorus
