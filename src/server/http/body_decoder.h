// Cuts a request's body out of the bytes that follow its head. Pure: it stores nothing of the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "server/http/header_checks.h"

namespace chorus::server {

// Chunks are read strictly: a size of 1 to 16 hexadecimal digits, an extension, CRLF, the data, CRLF. Trailers are
// checked and dropped: they never become headers.
class BodyDecoder {
 public:
  static constexpr size_t kMaxChunkLine = 1024;
  static constexpr size_t kMaxTrailerBytes = size_t{8} << 10;
  // Bytes of framing beyond 16 and twice the data of each chunk, in all.
  static constexpr size_t kMaxExcess = size_t{16} << 10;

  explicit BodyDecoder(const BodyFraming& framing);

  struct Step {
    size_t used = 0;        // of the bytes; 0: more of them are needed
    std::string_view data;  // the part of the body in them
  };
  // The next step from the front of bytes. After a fault, or when done() is true, nothing is used.
  Step next(std::string_view bytes);

  bool done() const { return part_ == Part::kDone; }
  const std::optional<HeadFault>& fault() const { return fault_; }

 private:
  enum class Part { kData, kChunkSize, kChunkData, kChunkEnd, kTrailer, kDone };

  Step takeData(std::string_view bytes, Part after);
  Step takeSizeLine(std::string_view bytes);
  Step takeTrailerLine(std::string_view bytes);
  // The line at the front of bytes without its CRLF; nullopt as long as it is incomplete, and for faults.
  std::optional<std::string_view> line(std::string_view bytes, size_t max_bytes);

  Part part_;
  uint64_t left_ = 0;  // of the body or of the chunk
  size_t excess_ = 0, trailer_bytes_ = 0;
  std::optional<HeadFault> fault_;
};

}  // namespace chorus::server
