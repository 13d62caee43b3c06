// Base64 of RFC 4648, with the standard alphabet.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace chorus {

// Padding at the end may be missing. Returns nullopt if there is another character than the alphabet's.
std::optional<std::string> decodeBase64(std::string_view text);

}  // namespace chorus
