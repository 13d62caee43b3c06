// Which model each request asks for: by Zipf's law over the models, whose order of popularity may change with time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace chorus {

// Ranks 0 .. count-1 with probabilities in proportion to 1 / (rank + 1)^skew.
class ZipfChoice {
 public:
  // count > 0; skew >= 0, 0 makes all equal.
  ZipfChoice(size_t count, double skew);
  // unit: in [0, 1).
  size_t choose(double unit) const;
  double probability(size_t rank) const { return cumulative_[rank] - (rank == 0 ? 0 : cumulative_[rank - 1]); }

 private:
  std::vector<double> cumulative_;  // ends at 1
};

class ModelMix {
 public:
  // churn_seconds: every so many seconds another random order decides which models are the popular ones; 0: the first
  // models are popular throughout.
  ModelMix(size_t models, double skew, double churn_seconds, uint64_t seed);
  // The model of a request that arrives at `time` seconds; times ascend.
  size_t choose(double time);

 private:
  void reorder();

  ZipfChoice zipf_;
  double churn_seconds_;
  uint64_t epoch_ = 0;
  std::mt19937_64 choices_, orders_;
  std::vector<size_t> order_;  // model of each rank
};

}  // namespace chorus
