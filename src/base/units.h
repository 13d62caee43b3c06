// Units for messages.
#pragma once

namespace chorus {

// Bytes as MiB, a number of any arithmetic type.
template <typename T>
double mebibytes(T bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

}  // namespace chorus
