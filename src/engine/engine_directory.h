// The files of an engine directory:
//   config.json     {"version", "pretrained_config", "build_config", "rank_digests"}
//   rankN.engine    one for each rank (engine/engine_file.h)
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/build_config.h"
#include "engine/engine_file.h"

namespace chorus {

// Digests of an engine's rank files, by rank. They tie the files to config.json: a directory with files of different
// builds, such as one that was copied in part, has shapes that fit and answers with wrong numbers.
using RankDigests = std::vector<std::string>;

// The digest of a file: of its index and of the beginning of every tensor, so that it costs little for any size.
std::string rankDigest(std::span<const std::byte> file, std::span<const EngineTensor> tensors);
// The digests in config.json; empty in one of a program that wrote none. Throws Error(kCorrupt) unless there is one for
// each rank.
RankDigests readRankDigests(const Json& config, int32_t ranks, std::string_view source);

void writeEngineConfig(const std::filesystem::path& dir, const Json& pretrained_config, const BuildConfig& config,
                       const RankDigests& digests);

// Returns an entry that forbids replacing the directory as an engine (StagedDirectory::FindForeign): any but
// config.json and rankN.engine. If there are only these, returns one of them unless one shows that `chorus build` wrote
// it, because TensorRT-LLM's engines have the same names.
std::optional<std::string> foreignToEngine(const std::filesystem::path& dir);

}  // namespace chorus
