#include "server/openai/answer_writer.h"

#include <utility>

namespace chorus::server {

void AnswerWriter::begin() {
  if (!options().stream || std::exchange(begun_, true)) return;
  setup_.exchange->beginStream(200, "text/event-stream; charset=utf-8");
  streamBegins();
}

Written AnswerWriter::fail(const ApiError& error) {
  if (begun_) {
    streamFails(error);
    setup_.exchange->endStream();
  } else {
    setup_.exchange->respond(error.response(form_));
  }
  return Written::kCancelled;
}

std::optional<ClientCharge> AnswerWriter::chargeCopies(size_t bytes) {
  ClientCharge charge(setup_.memory.client());
  if (bytes <= ClientCharge::kSmall) return charge;
  const MemoryAnswer answer = charge.resize(bytes);
  if (answer == MemoryAnswer::kGranted) return charge;
  fail(ApiError::outOfMemory(answer));
  return std::nullopt;
}

void startGeneration(const ApiContext& context, Generation::Job job, const std::shared_ptr<HttpExchange>& exchange,
                     std::shared_ptr<AnswerWriter> writer, WorkMeter& meter) {
  job.record = exchange->record();
  // Whether an adapter has room and can be loaded, and whether the request begins in time, is known only later, and a
  // client retries by the status. So such a stream begins with its first token.
  const bool begins_at_once = !job.model->adapter_id && job.model->composition.empty() && !job.queue_timeout;
  auto generation = std::make_shared<Generation>(context, std::move(job), meter);
  const HttpHeaders limits = generation->countUsage();
  generation->enqueue(meter);
  if (!limits.empty()) exchange->addHeaders(limits);
  generation->recordAccepted();
  try {
    exchange->onAbort([weak = std::weak_ptr(generation)] {
      if (const auto alive = weak.lock()) alive->cancel();
    });
    if (begins_at_once) writer->begin();
    generation->deliver(std::move(writer));
  } catch (...) {
    generation->cancel();
    throw;
  }
}

}  // namespace chorus::server
