#include "base/random_bits.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace chorus {

uint64_t randomBits() {
  uint64_t bits = 0;
  ssize_t got = 0;
  // A read of so few bytes is never partial. A signal interrupts it only while the kernel waits for its first entropy.
  do {
    got = getrandom(&bits, sizeof bits, 0);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof bits) fail(ErrorCode::kExhausted, "no random numbers from the kernel: {}", std::strerror(errno));
  return bits;
}

}  // namespace chorus
