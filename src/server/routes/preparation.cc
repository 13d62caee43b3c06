#include "server/routes/preparation.h"

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <utility>

#include "base/log.h"
#include "server/access/usage_limits.h"
#include "server/errors.h"
#include "server/openai/model_choice.h"
#include "server/work/preparation_memory.h"

namespace chorus::server {
namespace {

class Preparation : public std::enable_shared_from_this<Preparation> {
 public:
  Preparation(std::shared_ptr<const ApiContext> context, Intake& intake, RequestWork work, HttpRequest request,
              std::shared_ptr<HttpExchange> exchange)
      : context_(std::move(context)),
        intake_(intake),
        work_(work),
        request_(std::move(request)),
        exchange_(std::move(exchange)) {}

  // Throws ApiError when too many requests wait.
  void submit() {
    Intake::Job job{.client = request_.client ? request_.client->id() : 0,
                    .bytes = request_.body.size(),
                    .work = [self = shared_from_this()](WorkMeter& meter) { self->run(meter); }};
    if (context_->request_timeout) job.deadline = request_.received + *context_->request_timeout;
    switch (intake_.submit(ticket_, std::move(job))) {
      case FairQueue::Answer::kAdded:
        return;
      case FairQueue::Answer::kClientFull:
        throw ApiError::overloaded("Too many requests of this client are waiting; try again soon.");
      case FairQueue::Answer::kFull:
        throw ApiError::unavailable("Too many requests wait; try again soon.");
    }
  }

  // The client has disconnected.
  void abandon() {
    ticket_->cancel();
    if (const TextWaits::Id wait = wait_; wait != 0) context_->models.cancelWait(wait);
  }

 private:
  void run(WorkMeter& meter) {
    try {
      if (meter.cancelled()) throw ApiError::unavailable("The server is shutting down.");
      const PreparationMemory memory(meter, request_.client);
      try {
        work_(*context_, request_, exchange_, meter);
      } catch (const TextPending& pending) {
        waitFor(pending.adapter);
      }
    } catch (...) {
      refuse();
    }
  }

  void waitFor(const std::string& adapter) {
    if (std::exchange(waited_, true)) {
      throw ApiError::unavailable(
          fmt::format("The tokenizer of the adapter `{}` is still being read; try again soon.", adapter));
    }
    const auto wait = context_->models.waitForText(adapter, [self = shared_from_this()] { self->submitAgain(); });
    if (!wait) return submitAgain();
    wait_ = *wait;
    if (ticket_->cancelled()) context_->models.cancelWait(*wait);
  }

  void submitAgain() noexcept {
    try {
      submit();
    } catch (...) {
      refuse();
    }
  }

  // Answers with the exception that is being handled.
  void refuse() noexcept {
    try {
      const ApiError error = currentApiError();
      log::debug("{} answered {}: {}", request_.id, error.status(), error.message());
      // Before the answer, because the client may send its next request as soon as it has it.
      if (request_.usage) request_.usage->end();
      exchange_->respond(error.response(errorFormFor(request_.path, request_.id)));
    } catch (...) {  // out of memory: the exchange answers with status 500 when it is destroyed
      return;
    }
  }

  const std::shared_ptr<const ApiContext> context_;
  Intake& intake_;
  const RequestWork work_;
  HttpRequest request_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::shared_ptr<Intake::Ticket> ticket_ = std::make_shared<Intake::Ticket>();
  bool waited_ = false;
  std::atomic<TextWaits::Id> wait_ = 0;  // 0: none began
};

}  // namespace

void prepare(std::shared_ptr<const ApiContext> context, Intake& intake, RequestWork work, HttpRequest request,
             const std::shared_ptr<HttpExchange>& exchange) {
  const auto preparation =
      std::make_shared<Preparation>(std::move(context), intake, work, std::move(request), exchange);
  exchange->onAbort([weak = std::weak_ptr(preparation)] {
    if (const auto alive = weak.lock()) alive->abandon();
  });
  preparation->submit();
}

}  // namespace chorus::server
