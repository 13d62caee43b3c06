// Chooses the model of each request by Zipf's law. The models' order of popularity may change over time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace chorus {

// Ranks 0 .. count-1 with probabilities in proportion to 1 / (rank + 1)^skew.
class ZipfChoice {
 public:
  // count > 0; skew >= 0, where 0 makes all ranks equally likely.
  ZipfChoice(size_t count, double skew);
  // `unit` must be in [0, 1).
  size_t choose(double unit) const;
  double probability(size_t rank) const { return cumulative_[rank] - (rank == 0 ? 0 : cumulative_[rank - 1]); }

 private:
  std::vector<double> cumulative_;  // ends at 1
};

class ModelMix {
 public:
  // Every `churn_seconds` seconds a new random order decides which models are popular; with 0 the first models stay the
  // popular ones.
  ModelMix(size_t models, double skew, double churn_seconds, uint64_t seed);
  // Returns the model of a request that arrives at `time` seconds. Times must ascend.
  size_t choose(double time);

 private:
  void reorder();

  ZipfChoice zipf_;
  double churn_seconds_;
  uint64_t epoch_ = 0;
  std::mt19937_64 choices_, orders_;
  std::vector<size_t> order_;  // rank -> model
};

}  // namespace chorus
