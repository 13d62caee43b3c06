// JSON with limits: every document that crosses the process boundary is parsed here.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace chorus {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 64;
  bool unique_keys = false;  // refuse an object that names a key twice, instead of keeping the last
  std::string_view map;      // with unique_keys, the path of the one object ("/model/vocab") that keeps the last
};

// Throws Error(kCorrupt) with source, line and column on malformed text (trailing commas and comments included), on
// numbers beyond a double's range, on nesting beyond max_depth and on documents beyond max_bytes.
Json parseJson(std::string_view text, std::string_view source, const JsonLimits& limits = {});
OrderedJson parseOrderedJson(std::string_view text, std::string_view source, const JsonLimits& limits = {});
Json readJsonFile(const std::filesystem::path& path, const JsonLimits& limits = {});

// Typed access to an object's member. Throws Error(kInvalidArgument) that names source and key when the member has
// another type; the first form also when it is missing. Integers must be integral and in T's range.
template <typename T>
T jsonGet(const Json& object, const std::string& key, std::string_view source);
template <typename T>
T jsonGetOr(const Json& object, const std::string& key, T fallback, std::string_view source) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  return jsonGet<T>(object, key, source);
}

}  // namespace chorus
