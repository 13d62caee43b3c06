// The files of an engine directory:
//   config.json     {"version", "pretrained_config", "build_config"}
//   rankN.engine    one for each rank (engine/engine_file.h)
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace chorus {

// Finds an entry of the directory that is not of an engine (StagedDirectory::FindForeign): anything but config.json and
// rankN.engine, or one of these if none of them shows that `chorus build` wrote it. TensorRT-LLM's engines have the
// same names.
std::optional<std::string> foreignToEngine(const std::filesystem::path& dir);

}  // namespace chorus
