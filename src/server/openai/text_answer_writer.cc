#include "server/openai/text_answer_writer.h"

#include <utility>

#include "base/free_text.h"
#include "server/http/http_wire.h"

namespace chorus::server {

TextAnswerWriter::TextAnswerWriter(AnswerSetup setup, ErrorForm form, bool stream_keeps_text)
    : AnswerWriter(std::move(setup), std::move(form)), keeps_text_(stream_keeps_text || !options().stream) {}

bool TextAnswerWriter::send(std::string_view event, std::string payload) {
  const std::string text = sseEvent(event, payload);
  freeText(payload);
  return setup_.exchange->write(text);
}

Written TextAnswerWriter::onDelta(GenerationDelta delta) {
  begin();
  if (delta.finish_reason) answer_.finish_reason = *delta.finish_reason;
  answer_.stop_reason = std::move(delta.stop_reason);
  if (options().stream && !std::exchange(started_, true)) streamStarts(delta.usage);
  const size_t more = keepMore(delta);
  kept_more_ += more;
  const size_t kept = more + (keeps_text_ ? delta.text.size() : 0);
  if (kept > 0) {
    const MemoryAnswer granted = setup_.memory.add(kept);
    if (granted != MemoryAnswer::kGranted) return fail(ApiError::outOfMemory(granted));
  }
  if (keeps_text_) answer_.text += delta.text;
  const bool sent = delta.text.empty() || !options().stream || streamText(delta.text);
  return sent ? Written::kAll : Written::kCancelled;
}

Written TextAnswerWriter::onDone(const GenerationUsage& usage) {
  begin();
  answer_.usage = usage;
  const auto copies = chargeCopies(4 * answer_.text.size() + 2 * kept_more_);
  if (!copies) return Written::kCancelled;
  if (options().stream) {
    streamEnds(answer_);
    setup_.exchange->endStream();
    return Written::kAll;
  }
  HttpResponse response{.body = wholeAnswer(std::move(answer_))};
  response.memory = std::move(setup_.memory);
  setup_.exchange->respond(std::move(response));
  return Written::kAll;
}

}  // namespace chorus::server
