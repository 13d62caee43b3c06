// Decodes a request's body (with a Content-Length, or chunked) from the bytes that follow its head. Pure: no I/O, and
// no copy of the body is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "server/http/header_checks.h"

namespace chorus::server {

// Chunks are parsed strictly: a size of 1 to 16 hexadecimal digits, an optional extension, CRLF, the data, CRLF.
// Trailers are checked and dropped: they never become headers.
class BodyDecoder {
 public:
  static constexpr size_t kMaxChunkLine = 1024;
  static constexpr size_t kMaxTrailerBytes = size_t{8} << 10;
  // Limit on framing bytes, summed over all chunks that are shorter than their framing: each counts its framing bytes
  // beyond 16 + 2 * (bytes of data).
  static constexpr size_t kMaxExcess = size_t{16} << 10;

  explicit BodyDecoder(const BodyFraming& framing);

  struct Step {
    size_t used = 0;        // bytes consumed; 0: more input is needed
    std::string_view data;  // the body's bytes among those consumed
  };
  // Decodes one step from the front of `bytes`. Consumes nothing after a fault, or once done() is true.
  Step next(std::string_view bytes);

  bool done() const { return part_ == Part::kDone; }
  const std::optional<HeadFault>& fault() const { return fault_; }

 private:
  enum class Part { kData, kChunkSize, kChunkData, kChunkEnd, kTrailer, kDone };

  Step takeData(std::string_view bytes, Part after);
  Step takeSizeLine(std::string_view bytes);
  Step takeTrailerLine(std::string_view bytes);
  // Returns the line at the front of `bytes` without its CRLF; nullopt while it is incomplete, and after setting
  // fault_.
  std::optional<std::string_view> line(std::string_view bytes, size_t max_bytes);

  Part part_;
  uint64_t left_ = 0;  // bytes that remain of the body or of the current chunk
  size_t excess_ = 0, trailer_bytes_ = 0;
  std::optional<HeadFault> fault_;
};

}  // namespace chorus::server
