#include "server/http/hello_limit.h"

#include <algorithm>

namespace chorus::server {
namespace {

constexpr unsigned char kHandshakeRecord = 22;

}  // namespace

bool HelloLimit::accepts(std::span<const unsigned char> bytes) {
  return std::ranges::all_of(bytes, [this](unsigned char byte) { return acceptsByte(byte); });
}

bool HelloLimit::acceptsByte(unsigned char byte) {
  if (record_left_ == 0) {
    record_[record_header_++] = byte;
    if (record_header_ < record_.size()) return true;
    record_header_ = 0;
    record_left_ = size_t{record_[3]} << 8 | record_[4];
    return true;
  }
  --record_left_;
  if (record_[0] != kHandshakeRecord) return true;
  if (message_left_ > 0) {
    --message_left_;
    return true;
  }
  message_[message_header_++] = byte;
  if (message_header_ < message_.size()) return true;
  message_header_ = 0;
  message_left_ = size_t{message_[1]} << 16 | size_t{message_[2]} << 8 | message_[3];
  return message_left_ <= kMostBytes;
}

}  // namespace chorus::server
