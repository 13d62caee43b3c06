#include "cli/bench/serve/arrivals.h"

#include <cmath>

namespace chorus {

double unitRandom(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

double Arrivals::next() {
  if (kind_ == ArrivalKind::kConstant) return static_cast<double>(count_++) / rate_;
  time_ -= std::log1p(-unitRandom(random_)) / rate_;
  return time_;
}

}  // namespace chorus
