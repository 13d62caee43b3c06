// Server-sent events with names, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace chorus::server {

// The names and the JSON data of a stream's events.
inline std::vector<std::pair<std::string, Json>> namedEvents(const std::string& body) {
  std::vector<std::pair<std::string, Json>> out;
  size_t at = 0;
  while (at < body.size()) {
    const size_t line = body.find('\n', at), end = body.find("\n\n", at);
    const std::string name = body.substr(at, line - at), data = body.substr(line + 1, end - line - 1);
    EXPECT_TRUE(name.starts_with("event: ") && data.starts_with("data: ")) << name << data;
    if (end == std::string::npos || !data.starts_with("data: ")) break;
    out.emplace_back(name.substr(7), Json::parse(data.substr(6)));
    at = end + 2;
  }
  return out;
}

}  // namespace chorus::server
