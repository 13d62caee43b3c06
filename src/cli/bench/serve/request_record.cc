#include "cli/bench/serve/request_record.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/bench/serve/retry_after.h"

namespace chorus {
namespace {

constexpr size_t kMostRefusalBytes = 4096;

// Null when the text is not JSON.
Json parsed(std::string_view text) {
  try {
    return parseJson(text, "answer");
  } catch (const Error&) {
    return nullptr;
  }
}

// The "message" of an OpenAI error, or else the text itself.
std::string messageOf(std::string_view body) {
  const Json json = parsed(body);
  std::string text(body.substr(0, 200));
  if (json.is_object()) {
    const Json& error = json.contains("error") && json["error"].is_object() ? json["error"] : json;
    if (error.contains("message") && error["message"].is_string()) text = error["message"].get<std::string>();
  }
  return oneLine(text.substr(0, 200));
}

int countOr(const Json& object, const char* key, int fallback) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number_unsigned()) return fallback;
  const auto count = value->get<uint64_t>();
  return count <= uint64_t{1} << 30 ? static_cast<int>(count) : fallback;
}

// Whether the choices of a chunk contain text. Handles both completions and chat completions.
bool bringsText(const Json& chunk) {
  const auto choices = chunk.find("choices");
  if (choices == chunk.end() || !choices->is_array()) return false;
  for (const Json& choice : *choices) {
    if (!choice.is_object()) continue;
    const auto text = choice.find("text");
    if (text != choice.end() && text->is_string() && !text->get_ref<const std::string&>().empty()) return true;
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) continue;
    const auto content = delta->find("content");
    if (content != delta->end() && content->is_string() && !content->get_ref<const std::string&>().empty()) return true;
  }
  return false;
}

}  // namespace

StreamRecorder::StreamRecorder(RequestRecord& record, std::function<double()> now,
                               std::function<void(const Ended&)> done, AnswerContent* content)
    : record_(record),
      now_(std::move(now)),
      done_(std::move(done)),
      content_(content),
      parser_([this](std::string_view data) { onEvent(data); }) {}

void StreamRecorder::onHead(const ResponseHead& head) {
  status_ = head.status;
  retry_after_ = retryAfter(head.headers, std::chrono::system_clock::now());
}

void StreamRecorder::onBody(std::string_view bytes) {
  if (status_ != 200) {
    refusal_ += bytes.substr(0, kMostRefusalBytes - std::min(kMostRefusalBytes, refusal_.size()));
    return;
  }
  time_ = now_();
  try {
    parser_.feed(bytes);
  } catch (const Error& error) {
    onError("bad stream", error.what());
  }
}

void StreamRecorder::onEvent(std::string_view data) {
  if (data == "[DONE]") {
    finished_ = true;
    return;
  }
  const Json chunk = parsed(data);
  if (!chunk.is_object()) return onError("bad stream", "an event that is no JSON object");
  if (chunk.contains("error") && !chunk["error"].is_null()) return onError("stream error", messageOf(data));
  if (content_ != nullptr) content_->add(chunk, data.size());
  if (bringsText(chunk)) {
    if (record_.first < 0) {
      record_.first = time_;
    } else {
      record_.gaps.push_back(time_ - record_.last);
    }
    record_.last = time_;
    ++pieces_;
  }
  const auto usage = chunk.find("usage");
  if (usage == chunk.end() || !usage->is_object()) return;
  counted_ = countOr(*usage, "completion_tokens", counted_);
  record_.prompt_tokens = countOr(*usage, "prompt_tokens", record_.prompt_tokens);
}

// Only the first error is recorded.
void StreamRecorder::onError(std::string kind, std::string text) {
  if (!record_.error.empty()) return;
  record_.error = std::move(kind);
  record_.error_text = std::move(text);
}

void StreamRecorder::onEnd(CallEnd end, std::string_view reason) {
  record_.end = now_();
  record_.output_tokens = counted_ >= 0 ? counted_ : pieces_;
  const std::string text = oneLine(reason);
  switch (end) {
    case CallEnd::kComplete:
      if (status_ != 200) {
        onError(fmt::format("status {}", status_), messageOf(refusal_));
      } else if (!finished_) {
        onError("incomplete stream", "the answer ended before [DONE]");
      }
      break;
    case CallEnd::kRefused:
      onError("no connection", text);
      break;
    case CallEnd::kDisconnected:
      onError("disconnected", text);
      break;
    case CallEnd::kTimedOut:
      onError("timeout", "no end within --timeout_s");
      break;
    case CallEnd::kBadResponse:
      onError("bad response", text);
      break;
    case CallEnd::kStopped:
      onError(std::string(RequestRecord::kUnfinished), "the load was stopped");
      break;
  }
  done_({.status = end == CallEnd::kComplete ? status_ : 0, .retry_after = retry_after_});
}

}  // namespace chorus
