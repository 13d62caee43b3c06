// Random numbers that nobody can predict, for ids, sampling seeds and secret keys.
#pragma once

#include <cstdint>

namespace chorus {

// 64 random bits from the kernel. Thread safe, and different in a process and its fork, because nothing is kept between
// calls. A call is a system call and allocates nothing. Throws kExhausted if the kernel has no random numbers.
uint64_t randomBits();

}  // namespace chorus
