// The config.json of a directory, as far as it is needed to recognise what the directory holds.
#pragma once

#include <filesystem>

namespace chorus {

// True if dir/config.json is a JSON object with this key. Throws nothing: an unreadable file has no keys.
bool configHas(const std::filesystem::path& dir, const char* key);

}  // namespace chorus
