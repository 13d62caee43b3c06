// The adapters of the flags --adapters and --mixed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "lora/adapter.h"

namespace chorus {

// Subdirectories that contain an adapter_config.json, sorted by name; empty for an empty `dir`. Throws
// Error(kNotFound).
std::vector<std::filesystem::path> adapterDirectories(const std::string& dir);
// The first `mixed` of them. Throws Error(kInvalidArgument) if there are fewer.
std::vector<std::filesystem::path> firstAdapterDirectories(const std::string& dir, int mixed);

// Reads an adapter of the engine's model. Throws Error.
Adapter readAdapterOf(const Engine& engine, const std::filesystem::path& dir);

}  // namespace chorus
