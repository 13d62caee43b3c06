// The release that /v1/version reports.
#pragma once

#include <string_view>

namespace chorus::server {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace chorus::server
