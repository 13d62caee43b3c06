// Limits the first message of a TLS client, for which OpenSSL allocates as much as the message's header announces.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace chorus::server {

// Reads the headers of records and of handshake messages in the bytes that a client sends without encryption.
class HelloLimit {
 public:
  // Hellos with post-quantum keys and many extensions have a few KiB.
  static constexpr size_t kMostBytes = size_t{16} << 10;

  // Takes the next bytes of the connection, in any pieces. Returns false if they begin a message that announces more
  // than kMostBytes.
  bool accepts(std::span<const unsigned char> bytes);

 private:
  bool acceptsByte(unsigned char byte);

  std::array<unsigned char, 5> record_{};   // type, version (2 bytes), length (2 bytes)
  std::array<unsigned char, 4> message_{};  // type, length (3 bytes)
  size_t record_header_ = 0;                // bytes of record_ that have come
  size_t message_header_ = 0;               // bytes of message_ that have come
  size_t record_left_ = 0;                  // bytes of the record that are still to come
  size_t message_left_ = 0;                 // bytes of the message that are still to come, in this record or later ones
};

}  // namespace chorus::server
