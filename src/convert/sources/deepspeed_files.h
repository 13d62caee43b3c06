// The files of a DeepSpeed checkpoint, found by their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

namespace chorus {

// What the name of a file in a checkpoint says. DeepSpeed calls tensor-parallel ranks "mp" and ranks that ZeRO cuts
// parameters over "zero_pp".
struct DeepSpeedFileName {
  enum class Kind { kModel, kOptimizer, kLayer, kExpert };
  Kind kind = Kind::kModel;
  std::optional<int32_t> zero_rank;  // only files of one rank of ZeRO have it
  int32_t tensor_rank = 0;
  int32_t layer = 0;  // kLayer: of the pipeline
};
// nullopt for other files.
std::optional<DeepSpeedFileName> parseDeepSpeedFileName(std::string_view name);

struct DeepSpeedFiles {
  std::filesystem::path directory;  // of the files
  std::filesystem::path config;     // path of the model's config.json
  using ByRank = std::map<int32_t, std::filesystem::path>;
  // By tensor-parallel rank; whole state dicts of stages 0 to 2, or the metadata of a pipeline's stages.
  ByRank models;
  // The files of tensor-parallel rank 0, by rank of ZeRO.
  ByRank zero3_models;
  ByRank optimizers;
  int32_t optimizer_tensor_ranks = 0;  // tensor-parallel ranks that have files of ranks of ZeRO
  // By layer, then by tensor-parallel rank.
  std::map<int32_t, ByRank> layers;
};

// Whether the path is such a checkpoint, or a directory that has one. Throws nothing.
bool isDeepSpeedCheckpoint(const std::filesystem::path& path);

// path: the directory of the files ("global_step7"), or the one with the file "latest" that names it. Without "latest",
// the only such directory. The config.json is in the directory of the files or in one of the two above it, where
// transformers' Trainer writes it. Throws Error:
//   kNotFound     no directory or no config.json, or several directories and no "latest"
//   kCorrupt      "latest" does not name a directory, or two files have the same ranks
//   kUnsupported  experts of DeepSpeed's mixture of experts
DeepSpeedFiles findDeepSpeedFiles(const std::filesystem::path& path);

}  // namespace chorus
