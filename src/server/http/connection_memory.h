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
//   header           29    72   16,384 bytes; with TLS also most of the next record, and 15 KB of protocol names, which
//                               OpenSSL keeps
inline constexpr size_t kConnectionBytes = size_t{32} << 10;
inline constexpr size_t kTlsConnectionBytes = size_t{80} << 10;

}  // namespace chorus::server
