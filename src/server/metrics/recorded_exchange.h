// An exchange that reports its answer to a RequestRecord and otherwise does what the wrapped exchange does.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/metrics/request_record.h"

namespace chorus::server {

std::shared_ptr<HttpExchange> recordedExchange(std::shared_ptr<HttpExchange> exchange,
                                               std::shared_ptr<RequestRecord> record);

}  // namespace chorus::server
