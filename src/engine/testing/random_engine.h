// Engines with random weights for one or more ranks, for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <numeric>
#include <random>

#include "checkpoint/writer.h"
#include "engine/build.h"
#include "engine/rank_group.h"

namespace chorus {

// Three layers; four query heads and two key/value heads of 6.
inline ModelConfig randomModel(const Mapping& mapping, int64_t vocab = 45) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.dtype = DType::kBFloat16;
  config.vocab_size = vocab;
  config.hidden_size = 24;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_size = 6;
  config.intermediate_size = 40;
  config.max_position_embeddings = 64;
  config.hidden_act = "silu";
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  config.mapping = mapping;
  config.finalize("test");
  return config;
}

// Random values between -1/3 and 1/3.
inline std::vector<std::byte> randomValues(int64_t count, DType dtype, std::mt19937_64& rng) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(static_cast<int64_t>(rng() % 2001) - 1000) / 3000.0f;
  std::vector<std::byte> bytes(values.size() * dtypeSize(dtype));
  convertElements(values.data(), DType::kFloat32, bytes.data(), dtype, values.size());
  return bytes;
}

// A step of one sequence of `rows` tokens from position 0 on, in the blocks that `blocks` numbers from 0, which must
// live as long as the step. Each of the model's KV groups has an equal share of the blocks.
inline StepInput firstStep(int32_t rows, std::vector<int32_t>& blocks, int32_t kv_groups = 1) {
  std::iota(blocks.begin(), blocks.end(), 0);
  StepInput input;
  input.tokens.resize(static_cast<size_t>(rows));
  std::iota(input.tokens.begin(), input.tokens.end(), 7);
  const size_t share = blocks.size() / static_cast<size_t>(kv_groups);
  input.sequences.push_back(
      {.num_rows = rows,
       .block_tables = {std::span<const int32_t>(blocks).first(share), static_cast<ptrdiff_t>(share)}});
  return input;
}

class RandomEngineTest : public ::testing::Test {
 protected:
  RandomEngineTest() {
    std::string name = (std::filesystem::temp_directory_path() / "chorus_ranks_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  ~RandomEngineTest() override { std::filesystem::remove_all(dir_); }

  // Build options for LoRA and for sequences of at most 64 tokens in blocks of 4.
  static BuildConfig smallBuild() {
    BuildConfig build;
    build.lora_plugin = true;
    build.max_seq_len = 64;
    build.tokens_per_block = 4;
    return build;
  }

  // Builds an engine in a directory that is named after the seed, and returns the directory.
  std::filesystem::path makeEngine(const ModelConfig& config, const BuildConfig& build, uint64_t seed) {
    const std::filesystem::path dir = dir_ / std::to_string(seed);
    const WeightTable table = findArchitecture(config.architecture).weightTable(config);
    CheckpointWriter writer(dir / "checkpoint", config, table);
    for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) {
      for (const RankTensor& tensor : writer.tensors(rank)) {
        // Tensors that are not cut are the same on all ranks.
        const bool whole = tensor.row->shard.axis == ShardRule::Axis::kNone;
        std::mt19937_64 rng(seed + std::hash<std::string>()(tensor.name) + (whole ? 0 : static_cast<uint64_t>(rank)));
        const int64_t count =
            std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
        writer.write(rank, tensor.name, 0, randomValues(count, tensor.dtype, rng));
      }
    }
    writer.publish();
    buildEngine(dir / "checkpoint", dir / "engine", build, 1);
    return dir / "engine";
  }

  std::filesystem::path dir_;
};

}  // namespace chorus
