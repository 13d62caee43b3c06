// Wire formats: response heads, chunk and server-sent-event framing, request ids.
#pragma once

#include <string>
#include <string_view>

#include "server/http/http.h"

namespace chorus::server {

std::string_view reasonPhrase(int status);

inline constexpr int64_t kChunkedLength = -1;
inline constexpr int64_t kLengthUntilClose = -2;  // for HTTP/1.0
// content_length is a length or one of the two constants. Ends with the empty line.
std::string responseHead(int status, std::string_view content_type, int64_t content_length, bool keepAlive,
                         std::string_view requestId, const HttpHeaders& headers);

// Appends one chunk of a chunked body. bytes must not be empty, because an empty chunk ends the body.
void appendChunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Returns a server-sent event: "data: PAYLOAD\n\n", with one data line per line of the payload.
std::string sseEvent(std::string_view payload);
// Overload for an event with a name: "event: NAME\n" comes first.
std::string sseEvent(std::string_view name, std::string_view payload);

// Returns `prefix` followed by 32 random hexadecimal digits. Thread-safe.
std::string randomId(std::string_view prefix);

// 1 to 128 letters, digits, '.', '_' or '-': safe to echo in a header and to log.
bool isWellFormedRequestId(std::string_view id);

}  // namespace chorus::server
