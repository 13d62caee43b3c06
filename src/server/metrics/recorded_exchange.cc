#include "server/metrics/recorded_exchange.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

namespace chorus::server {
namespace {

// nginx's status for a client that disconnects before its answer begins.
constexpr int kClientClosed = 499;

class RecordedExchange : public HttpExchange {
 public:
  RecordedExchange(std::shared_ptr<HttpExchange> exchange, std::shared_ptr<RequestRecord> record)
      : exchange_(std::move(exchange)), record_(std::move(record)) {}

  // The wrapped exchange answers with status 500 if nobody has answered, or breaks off the stream.
  ~RecordedExchange() override { record_->answered(status_ == 0 ? 500 : status_.load(), bytes_, false); }

  // Call it once, when the exchange is owned by a shared_ptr.
  static void watch(const std::shared_ptr<RecordedExchange>& recorded) {
    recorded->exchange_->onAbort([weak = std::weak_ptr(recorded)] {
      if (const auto alive = weak.lock()) alive->aborted();
    });
  }

  void addHeaders(const HttpHeaders& headers) override { exchange_->addHeaders(headers); }
  HttpResponse charged(HttpResponse response) override { return exchange_->charged(std::move(response)); }
  void respond(HttpResponse response) override {
    if (status_ == 0) {
      response = exchange_->charged(std::move(response));
      status_ = response.status;
      bytes_ = response.body.size();
      record_->answered(status_, bytes_, false);
    }
    exchange_->respond(std::move(response));
  }
  void beginStream(int status, std::string_view content_type) override {
    status_ = status;
    exchange_->beginStream(status, content_type);
  }
  bool write(std::string_view bytes) override {
    bytes_ += bytes.size();
    return exchange_->write(bytes);
  }
  void endStream() override {
    record_->answered(status_, bytes_, false);
    exchange_->endStream();
  }
  void onAbort(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_) {
        callback_.swap(callback);
        return;
      }
    }
    callback();
  }
  std::shared_ptr<RequestRecord> record() const override { return record_; }

 private:
  void aborted() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      callback.swap(callback_);
    }
    if (callback) callback();
    record_->answered(status_ == 0 ? kClientClosed : status_.load(), bytes_, true);
  }

  const std::shared_ptr<HttpExchange> exchange_;
  const std::shared_ptr<RequestRecord> record_;
  std::atomic<int> status_{0};  // 0: not answered yet
  std::atomic<uint64_t> bytes_{0};
  std::mutex mutex_;  // guards what follows
  bool aborted_ = false;
  std::function<void()> callback_;
};

}  // namespace

std::shared_ptr<HttpExchange> recordedExchange(std::shared_ptr<HttpExchange> exchange,
                                               std::shared_ptr<RequestRecord> record) {
  auto recorded = std::make_shared<RecordedExchange>(std::move(exchange), std::move(record));
  RecordedExchange::watch(recorded);
  return recorded;
}

}  // namespace chorus::server
