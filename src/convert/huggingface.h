// Converts a Hugging Face model directory to a checkpoint directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/dtype.h"
#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "formats/tensor_source.h"

namespace chorus {

// Weight-only quantisation by round to nearest (convert/quantise.h).
struct QuantiseOptions {
  int32_t bits = 8;        // 8 or 4
  int32_t group_size = 0;  // inputs that share a scale: 32, 64 or 128; 0: one scale an output
  bool quantise_head = false;
};

struct ConvertOptions {
  std::optional<DType> dtype;  // float32, float16 or bfloat16; nullopt: that of config.json, or else of the tensors
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  bool use_parallel_embedding = false;
  int32_t embedding_sharding_dim = 0;  // 0: vocabulary, 1: hidden size; only with use_parallel_embedding
  std::optional<QuantiseOptions> quantise;
  int32_t workers = 0;  // threads that copy; 0: one per core
};

// The config of the checkpoint that convertHuggingFace would write. The dtypes of `tensors` are used only if neither
// options nor config.json name a dtype. Throws Error.
ModelConfig configOfHuggingFace(const std::filesystem::path& model_dir, const TensorSource& tensors,
                                const ConvertOptions& options);

struct HuggingFaceModel {
  TensorSource tensors;
  ModelConfig config;  // config of the checkpoint to write
  WeightTable table;   // weight table of `config`
};
// Reads only config.json. Throws Error if it is missing, is not readable, or names an unknown architecture.
void checkHuggingFaceConfig(const std::filesystem::path& model_dir);

// Opens model_dir and checks its tensors against its config.json. Throws Error that names the tensor if one is missing
// or unexpected, or has a wrong shape or an unusable dtype.
HuggingFaceModel openHuggingFace(const std::filesystem::path& model_dir, const ConvertOptions& options);

// Converts the model in model_dir to a checkpoint in output_dir.
//   - The weights may have any form that TensorSource opens (formats/tensor_source.h).
//   - output_dir appears only when it is complete. An earlier checkpoint there is replaced; other files are never
//     replaced.
//   - Values are rounded to nearest even.
//   - Memory: a few MB per worker; sources are mapped.
// Throws Error that names the tensor if one is missing or unexpected, has a wrong shape or an unusable dtype, has
// values that float16 cannot hold, or cannot be quantised as options ask.
void convertHuggingFace(const std::filesystem::path& model_dir, const std::filesystem::path& output_dir,
                        const ConvertOptions& options);

}  // namespace chorus
