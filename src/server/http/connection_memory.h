// The memory of open connections beside what is charged to their clients (ClientMemoryLimits).
#pragma once

#include <cstddef>

namespace chorus::server {

// Most bytes of one connection. Measured as the growth of a process by 1,000 connections of clients that make them as
// large as they can without a complete request (x86-64, glibc 2.36, OpenSSL 3.0), without the buffers of the kernel:
//
//   KiB            HTTP   TLS
//   idle              2    16
//   handshake         -    60   an answered hello, then most of a record
//   header           25    55   100 fields of 150 bytes; with TLS also most of the next record
inline constexpr size_t kConnectionBytes = size_t{32} << 10;
inline constexpr size_t kTlsConnectionBytes = size_t{64} << 10;

}  // namespace chorus::server
