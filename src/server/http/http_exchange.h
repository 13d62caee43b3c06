// The exchange of one request on an HttpConnection.
#pragma once

#include <memory>
#include <string>

#include "server/http/http_connection.h"

namespace chorus::server {

class HttpConnection::Exchange : public HttpExchange {
 public:
  // chunked: a stream uses chunked framing; otherwise the end of the connection ends it.
  // form: of errors; it has the id of the request.
  Exchange(std::shared_ptr<HttpConnection> connection, uint64_t serial, ErrorForm form, bool head_only, bool chunked);
  ~Exchange() override;

  void addHeaders(const HttpHeaders& headers) override;
  void respond(HttpResponse response) override;
  HttpResponse charged(HttpResponse response) override;
  void beginStream(int status, std::string_view content_type) override;
  bool write(std::string_view bytes) override;
  void endStream() override;
  void onAbort(std::function<void()> callback) override;

 private:
  enum class Stage { kOpen, kStreaming, kDone };
  std::shared_ptr<HttpConnection> connection_;
  uint64_t serial_;
  ErrorForm form_;
  bool head_only_;
  bool chunked_;
  Stage stage_ = Stage::kOpen;
};

}  // namespace chorus::server
