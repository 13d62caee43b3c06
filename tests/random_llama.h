// Random small Llama models and adapters, written as a user would have them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace chorus::test {

// Float values of a tensor; every one is exact in float32, float16 and bfloat16.
struct PlainTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
};
using PlainTensors = std::map<std::string, PlainTensor>;

struct RandomLlama {
  int64_t layers = 3, hidden = 24, heads = 4, kv_heads = 2, head_size = 6, mlp = 28, vocab = 37;
  bool attention_bias = false, mlp_bias = false, tied = false;
  PlainTensors tensors;  // by the source's names

  // One line for a failing test.
  std::string describe() const;
};

// heads is a multiple of 4 and mlp too, kv_heads a power of two from 1 to heads; the rest is odd where it may
// be.
RandomLlama randomLlamaShape(std::mt19937_64& rng);
// Weights of a network whose activations stay near 1.
void fillWeights(RandomLlama& model, std::mt19937_64& rng);

// config.json and model.safetensors.
void writeModel(const RandomLlama& model, const std::filesystem::path& dir);
// A PEFT directory: some or all of the linears of some or all layers; LoRA, rsLoRA or DoRA.
void writeRandomAdapter(const RandomLlama& model, bool dora, std::mt19937_64& rng, const std::filesystem::path& dir);

}  // namespace chorus::test
