// Random small Llama models and adapters, as the files that a user would have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace chorus::test {

// A float tensor whose values are all exact in float32, float16 and bfloat16.
struct PlainTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
};
using PlainTensors = std::map<std::string, PlainTensor>;

// Values around `mean` with this standard deviation.
PlainTensor randomTensor(std::vector<int64_t> shape, double mean, double deviation, std::mt19937_64& rng);
// Writes a safetensors file of float32 tensors.
void writeTensors(const PlainTensors& tensors, const std::filesystem::path& path);

struct RandomLlama {
  int64_t layers = 3, hidden = 24, heads = 4, kv_heads = 2, head_size = 6, mlp = 28, vocab = 37;
  bool attention_bias = false, mlp_bias = false, tied = false;
  PlainTensors tensors;  // by their names in the source model

  // Returns a line that describes the model in failure messages.
  std::string describe() const;
};

// heads and mlp are multiples of 4, kv_heads is a power of two from 1 to heads; the other sizes may be odd where that
// is valid.
RandomLlama randomLlamaShape(std::mt19937_64& rng);
// Fills in weights that keep activations near 1.
void fillWeights(RandomLlama& model, std::mt19937_64& rng);

// Writes config.json and model.safetensors.
void writeModel(const RandomLlama& model, const std::filesystem::path& dir);
// Writes a PEFT directory: some or all linears of every layer; LoRA or DoRA, with or without rsLoRA.
void writeRandomAdapter(const RandomLlama& model, bool dora, std::mt19937_64& rng, const std::filesystem::path& dir);

}  // namespace chorus::test
