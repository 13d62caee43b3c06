// Reads bodies of the type multipart/form-data (RFC 7578, with the framing of RFC 2046).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorus::server {

struct FormPart {
  std::string name;          // of its Content-Disposition
  std::string filename;      // empty if it has none
  std::string_view content;  // in the body
};

// Limits on a body that parseMultipart() accepts.
inline constexpr size_t kMaxFormParts = 16;
inline constexpr size_t kMaxPartHead = size_t{8} << 10;

// The parts in their order. content_type: the header of the request; it must be multipart/form-data and name the
// boundary. The body must begin with the first delimiter and end with the last one. Linear in the size of the body,
// which must outlive the result. Throws ApiError (400), whose message quotes no byte of the body.
std::vector<FormPart> parseMultipart(std::string_view content_type, std::string_view body);

}  // namespace chorus::server
