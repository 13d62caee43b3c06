// NeMo's Megatron GPT models: a .nemo archive, a directory with one, or the directory into which one was unpacked.
#pragma once

#include <filesystem>

#include "convert/sources/sources.h"

namespace chorus {

SourceReader nemoReader();

// Whether the path is NeMo's (as for nemoReader) and the config says that it holds an adapter. Throws nothing.
bool holdsNemoAdapter(const std::filesystem::path& path);

}  // namespace chorus
