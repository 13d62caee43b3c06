// Writes a generation's progress as one HTTP answer, whole or as server-sent events. Subclasses know the API's shapes.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/openai/generation.h"

namespace chorus::server {

struct AnswerSetup {
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<const ServedModel> model;
  GenerationOptions options;
  size_t choices;       // number of choices that are generated
  ClientCharge memory;  // for what is kept until a whole answer is complete
};

class AnswerWriter : public GenerationListener {
 public:
  // Sends the head of a stream, unless it was sent. Without this call it is sent with the first piece. Does nothing for
  // a whole answer.
  virtual void begin() = 0;
};

// Starts the job and answers the exchange through the writer. The job is cancelled if the client disconnects. Throws
// ApiError only if nothing was sent yet.
void startGeneration(const ApiContext& context, Generation::Job job, const std::shared_ptr<HttpExchange>& exchange,
                     std::shared_ptr<AnswerWriter> writer, WorkMeter& meter);

}  // namespace chorus::server
