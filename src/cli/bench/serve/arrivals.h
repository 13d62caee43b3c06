// Arrival times of an open-loop load: planned in advance and independent of the responses.
#pragma once

#include <cstdint>
#include <random>

namespace chorus {

// A number in [0, 1) that depends only on the generator's state, not on the machine or standard library.
double unitRandom(std::mt19937_64& random);

enum class ArrivalKind { kPoisson, kConstant };

class Arrivals {
 public:
  // `rate`: requests per second, > 0.
  Arrivals(ArrivalKind kind, double rate, uint64_t seed) : kind_(kind), rate_(rate), random_(seed) {}
  // Seconds since the start, ascending. The first constant arrival is at 0; gaps of a Poisson process are exponential,
  // the one before the first included.
  double next();

 private:
  ArrivalKind kind_;
  double rate_;
  std::mt19937_64 random_;
  uint64_t count_ = 0;
  double time_ = 0;
};

}  // namespace chorus
