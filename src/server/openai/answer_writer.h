// Writes a generation's progress as one HTTP answer, whole or as server-sent events. Subclasses know the API's shapes.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "server/errors.h"
#include "server/http/http.h"
#include "server/openai/generation.h"

namespace chorus::server {

struct AnswerSetup {
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<const ServedModel> model;
  AnswerFields options;
  size_t choices;       // number of choices that are generated
  ClientCharge memory;  // for what is kept until a whole answer is complete
};

class AnswerWriter : public GenerationListener {
 public:
  // Sends the head of a stream, unless it was sent. Without this call it is sent with the first piece. Does nothing for
  // a whole answer.
  void begin();
  void onError(const ApiError& error) final { fail(error); }

 protected:
  // form: of errors.
  explicit AnswerWriter(AnswerSetup setup, ErrorForm form = {}) : setup_(std::move(setup)), form_(std::move(form)) {}

  const ServedModel& model() const { return *setup_.model; }
  const AnswerFields& options() const { return setup_.options; }
  const ErrorForm& errorForm() const { return form_; }
  // Ends the answer with the error: as the response if nothing was sent yet, otherwise as the last events of the
  // stream. Returns kCancelled, so that onDelta() can return it.
  Written fail(const ApiError& error);
  // Charges the memory of copies that are made while an answer is written. Returns nullopt if it is not granted; then
  // the answer has ended with that error. Few bytes are not charged, because only the delivery threads make copies.
  std::optional<ClientCharge> chargeCopies(size_t bytes);
  // Called once, after the head of a stream.
  virtual void streamBegins() {}
  // Sends the events that tell the client of an error. The caller ends the stream.
  virtual void streamFails(const ApiError& error) = 0;

  AnswerSetup setup_;

 private:
  ErrorForm form_;
  bool begun_ = false;  // the head of the stream was sent
};

// Starts the job and answers the exchange through the writer. The job is cancelled if the client disconnects. Throws
// ApiError only if nothing was sent yet.
void startGeneration(const ApiContext& context, Generation::Job job, const std::shared_ptr<HttpExchange>& exchange,
                     std::shared_ptr<AnswerWriter> writer, WorkMeter& meter);

}  // namespace chorus::server
