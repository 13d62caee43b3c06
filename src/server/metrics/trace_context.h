// The trace of a request: W3C Trace Context, header traceparent.
#pragma once

#include <string_view>

namespace chorus::server {

// The trace id, 32 lower-case hexadecimal digits, of a traceparent header `VERSION-TRACE-PARENT-FLAGS`. Empty unless
// the value is valid. A higher version than 00 may have further fields.
std::string_view traceIdOf(std::string_view traceparent);

}  // namespace chorus::server
