// Lists of tensor and key names in error lines and ignore rules.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace chorus {

// True when one of the fnmatch patterns matches the name.
bool matchesAny(std::span<const std::string> patterns, const std::string& name);
// The first few names, comma-separated, followed by the number of the others.
std::string listSome(std::span<const std::string> names);

}  // namespace chorus
