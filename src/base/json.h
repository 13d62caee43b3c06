// JSON parsing with limits. Every document that comes from outside the process is parsed here.
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
  bool unique_keys = false;  // true: refuse an object with a duplicate key; false: keep the last value
  std::string_view map;      // with unique_keys: path of one object that may have duplicates, e.g. "/model/vocab"
};

// Throws Error(kCorrupt) that names `source`: on malformed text (including trailing commas and comments) with line and
// column, on numbers beyond a double's range, on nesting beyond max_depth and on documents beyond max_bytes.
Json parseJson(std::string_view text, std::string_view source, const JsonLimits& limits = {});
OrderedJson parseOrderedJson(std::string_view text, std::string_view source, const JsonLimits& limits = {});

// Receives the values of a document one by one and decides what to store. Handlers return true; to reject a value they
// throw an Error, which ends parsing.
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
// Parses a document in linear time, as strictly as parseJson, and calls `events` for each value. Throws what parseJson
// throws. Ignores limits.unique_keys and limits.map: `events` must check for duplicate keys itself.
void parseJsonEvents(std::string_view text, std::string_view source, const JsonLimits& limits, JsonEvents& events);

Json readJsonFile(const std::filesystem::path& path, const JsonLimits& limits = {});

// Typed access to an object's member. jsonGet throws Error(kInvalidArgument), naming source and key, when the member is
// missing, has another type, or is an integer outside T's range. jsonGetOr returns `fallback` when the member is
// missing or null, and otherwise throws as jsonGet does.
template <typename T>
T jsonGet(const Json& object, const std::string& key, std::string_view source);
template <typename T>
T jsonGetOr(const Json& object, const std::string& key, T fallback, std::string_view source) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  return jsonGet<T>(object, key, source);
}

}  // namespace chorus
