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

// Takes a document's values one by one, in memory of its own choice. What it throws ends the parsing. Those that return
// false are never needed: throw an Error.
class JsonEvents : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) final;

 private:
  friend void parseJsonEvents(std::string_view, std::string_view, const JsonLimits&, JsonEvents&);
  size_t error_position_ = 0;
  bool malformed_ = false;
};
// Feeds a document to events, as strict as parseJson and in linear time. Throws what parseJson throws; unique_keys and
// map are the events' own affair.
void parseJsonEvents(std::string_view text, std::string_view source, const JsonLimits& limits, JsonEvents& events);

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
