#include "server/http/body_decoder.h"

#include <algorithm>
#include <charconv>

namespace chorus::server {
namespace {

constexpr HeadFault kBadChunk{400, "The request's chunked body is not well-formed."};

bool isHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

BodyDecoder::BodyDecoder(const BodyFraming& framing)
    : part_(framing.chunked ? Part::kChunkSize : Part::kData), left_(framing.chunked ? 0 : framing.length) {
  if (part_ == Part::kData && left_ == 0) part_ = Part::kDone;
}

BodyDecoder::Step BodyDecoder::next(std::string_view bytes) {
  if (fault_ || bytes.empty()) return {};
  switch (part_) {
    case Part::kData:
      return takeData(bytes, Part::kDone);
    case Part::kChunkData:
      return takeData(bytes, Part::kChunkEnd);
    case Part::kChunkSize:
      return takeSizeLine(bytes);
    case Part::kChunkEnd:
      if (!std::string_view("\r\n").starts_with(bytes.substr(0, 2))) fault_ = kBadChunk;
      if (fault_ || bytes.size() < 2) return {};
      part_ = Part::kChunkSize;
      return {2, {}};
    case Part::kTrailer:
      return takeTrailerLine(bytes);
    case Part::kDone:
      break;
  }
  return {};
}

BodyDecoder::Step BodyDecoder::takeData(std::string_view bytes, Part after) {
  const auto size = static_cast<size_t>(std::min<uint64_t>(bytes.size(), left_));
  left_ -= size;
  if (left_ == 0) part_ = after;
  return {size, bytes.substr(0, size)};
}

std::optional<std::string_view> BodyDecoder::line(std::string_view bytes, size_t max_bytes) {
  const size_t end = bytes.find_first_of(std::string_view("\r\n\0", 3));
  if (std::min(end, bytes.size()) > max_bytes) {
    fault_ = kBadChunk;
    return std::nullopt;
  }
  if (end == std::string_view::npos || (bytes[end] == '\r' && end + 1 == bytes.size())) return std::nullopt;
  if (!bytes.substr(end).starts_with("\r\n")) {
    fault_ = kBadChunk;
    return std::nullopt;
  }
  return bytes.substr(0, end);
}

BodyDecoder::Step BodyDecoder::takeSizeLine(std::string_view bytes) {
  const auto text = line(bytes, kMaxChunkLine);
  if (!text) return {};
  const size_t digits = static_cast<size_t>(std::find_if_not(text->begin(), text->end(), isHexDigit) - text->begin());
  // Chunk extensions are ignored. One with control characters is refused, because another parser may read it
  // differently.
  const bool extended = digits < text->size();
  const bool plain = std::all_of(text->begin(), text->end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return c == '\t' || (code >= ' ' && code != 0x7f);
  });
  if (digits == 0 || digits > 16 || !plain || (extended && (*text)[digits] != ';')) {
    fault_ = kBadChunk;
    return {};
  }
  std::from_chars(text->data(), text->data() + digits, left_, 16);
  const size_t framing = text->size() + 4;
  if (left_ < framing) excess_ += framing - std::min(framing, 16 + 2 * static_cast<size_t>(left_));
  if (excess_ > kMaxExcess) {
    fault_ = kBadChunk;
    return {};
  }
  part_ = left_ == 0 ? Part::kTrailer : Part::kChunkData;
  return {text->size() + 2, {}};
}

BodyDecoder::Step BodyDecoder::takeTrailerLine(std::string_view bytes) {
  const auto text = line(bytes, kMaxTrailerBytes - trailer_bytes_);
  if (!text) return {};
  trailer_bytes_ += std::min(text->size() + 2, kMaxTrailerBytes - trailer_bytes_);
  if (text->empty()) {
    part_ = Part::kDone;
  } else if (text->find(':') == std::string_view::npos || text->find(':') == 0 || text->front() == ' ' ||
             text->front() == '\t') {
    fault_ = kBadChunk;
    return {};
  }
  return {text->size() + 2, {}};
}

}  // namespace chorus::server
