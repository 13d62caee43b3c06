// The random numbers of NumPy that TensorRT-LLM's summarize.py depends on: the order in which the package datasets
// shuffles rows, and the samples from which rouge-score aggregates. With them the same data gives the same results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace chorus {

// numpy.random.default_rng(seed).permutation(count), for count below 2^32.
std::vector<size_t> numpyPermutation(uint64_t seed, size_t count);

// Equals numpy.random.seed(seed); each draw() then equals a call of numpy.random.choice(count, size=count).
class NumpyChoices {
 public:
  explicit NumpyChoices(uint32_t seed) : generator_(seed) {}
  // Indices below `count`, with repetition. count: at least 1, below 2^32.
  std::vector<size_t> draw(size_t count);

 private:
  std::mt19937 generator_;
};

}  // namespace chorus
