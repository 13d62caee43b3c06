#include "cli/bench/serve/model_mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cli/bench/serve/arrivals.h"

namespace chorus {

ZipfChoice::ZipfChoice(size_t count, double skew) {
  double sum = 0;
  for (size_t rank = 0; rank < count; ++rank) {
    sum += std::pow(static_cast<double>(rank + 1), -skew);
    cumulative_.push_back(sum);
  }
  for (double& value : cumulative_) value /= sum;
  cumulative_.back() = 1.0;
}

size_t ZipfChoice::choose(double unit) const {
  return static_cast<size_t>(std::upper_bound(cumulative_.begin(), cumulative_.end(), unit) - cumulative_.begin());
}

ModelMix::ModelMix(size_t models, double skew, double churn_seconds, uint64_t seed)
    : zipf_(models, skew), churn_seconds_(churn_seconds), choices_(seed), orders_(~seed), order_(models) {
  std::iota(order_.begin(), order_.end(), size_t{0});
}

size_t ModelMix::choose(double time) {
  if (churn_seconds_ > 0) {
    const auto epoch = static_cast<uint64_t>(time / churn_seconds_);
    for (; epoch_ < epoch; ++epoch_) reorder();
  }
  return order_[zipf_.choose(unitRandom(choices_))];
}

void ModelMix::reorder() {
  for (size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[static_cast<size_t>(unitRandom(orders_) * static_cast<double>(i))]);
  }
}

}  // namespace chorus
