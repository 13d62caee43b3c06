// The files of a DeepSpeed checkpoint, found by their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

namespace chorus {

// The kind and the ranks of a checkpoint's file, as parsed from its name. In names, "mp" stands for the tensor-parallel
// rank, and "zero_pp" for the rank among those over which ZeRO partitions the parameters.
struct DeepSpeedFileName {
  enum class Kind { kModel, kOptimizer, kLayer, kExpert };
  Kind kind = Kind::kModel;
  std::optional<int32_t> zero_rank;  // nullopt for a file that does not belong to one rank of ZeRO
  int32_t tensor_rank = 0;
  int32_t layer = 0;  // kLayer only: number of the layer in the pipeline
};
// Returns nullopt for a file that is no part of a checkpoint.
std::optional<DeepSpeedFileName> parseDeepSpeedFileName(std::string_view name);

struct DeepSpeedFiles {
  std::filesystem::path directory;  // holds the files
  std::filesystem::path config;     // path of the model's config.json
  using ByRank = std::map<int32_t, std::filesystem::path>;
  // Files by tensor-parallel rank. With ZeRO stages 0 to 2 they hold whole state dicts; with pipeline parallelism they
  // hold only metadata.
  ByRank models;
  // The files of tensor-parallel rank 0, by the rank of ZeRO.
  ByRank zero3_models;
  ByRank optimizers;
  int32_t optimizer_tensor_ranks = 0;  // number of tensor-parallel ranks that have files with a zero_rank
  // Files of pipeline layers, by layer and then by tensor-parallel rank.
  std::map<int32_t, ByRank> layers;
};

// Whether the path is a DeepSpeed checkpoint, or a directory that has one. Throws nothing.
bool isDeepSpeedCheckpoint(const std::filesystem::path& path);

// path: the directory of the files ("global_step7"), or the one with the file "latest" that names it. Without "latest",
// the only such directory. The config.json is in the directory of the files or in one of the two above it, where
// transformers' Trainer writes it. Throws Error:
//   kNotFound     no directory or no config.json, or several directories and no "latest"
//   kCorrupt      "latest" does not name a directory, or two files have the same ranks
//   kUnsupported  experts of DeepSpeed's mixture of experts
DeepSpeedFiles findDeepSpeedFiles(const std::filesystem::path& path);

}  // namespace chorus
