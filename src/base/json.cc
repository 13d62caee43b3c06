#include "base/json.h"

#include <limits>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace chorus {
namespace {

// nlohmann's parser keeps an explicit stack, but destroying and dumping a value recurse: depth is checked first.
void checkDepth(std::string_view text, std::string_view source, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) fail(ErrorCode::kCorrupt, "{}: JSON nests deeper than {} levels", source, max_depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

// Sees every key of the text; the parser of documents would overwrite the first value in silence.
class UniqueKeys final : public nlohmann::json_sax<Json> {
 public:
  UniqueKeys(std::string_view source, std::string_view map) : source_(source), map_(map) {}

  bool key(string_t& key) override {
    Object& object = open_.back();
    if (object.unique && !object.keys.insert(key).second)
      fail(ErrorCode::kCorrupt, "{}: key '{}' appears twice", source_, key);
    object.key = key;
    return true;
  }
  bool start_object(std::size_t) override {
    std::string path;
    if (!map_.empty()) {
      for (const Object& object : open_) path.append("/").append(object.key);
    }
    open_.push_back({path.empty() || path != map_, "", {}});
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  struct Object {
    bool unique;
    std::string key;  // the last one
    std::unordered_set<std::string> keys;
  };
  std::string_view source_, map_;
  std::vector<Object> open_;
};

[[noreturn]] void failAt(std::string_view text, size_t position, std::string_view source) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < std::min(position, text.size()); ++i) {
    if (text[i] == '\n')
      ++line, column = 1;
    else
      ++column;
  }
  fail(ErrorCode::kCorrupt, "{}: malformed JSON at line {} column {}", source, line, column);
}

template <typename J>
J parse(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    fail(ErrorCode::kCorrupt, "{}: {} bytes of JSON, more than the limit of {}", source, text.size(), limits.max_bytes);
  }
  checkDepth(text, source, limits.max_depth);
  // The parser takes a NUL byte for the end and would ignore what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) failAt(text, nul, source);
  try {
    J json = J::parse(text.begin(), text.end());
    if (limits.unique_keys) {
      UniqueKeys unique(source, limits.map);
      Json::sax_parse(text.begin(), text.end(), &unique);
    }
    return json;
  } catch (const nlohmann::json::parse_error& e) {
    failAt(text, e.byte == 0 ? size_t{0} : e.byte - 1, source);
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::kCorrupt, "{}: JSON holds a number that no double can hold", source);
  }
}

const Json& member(const Json& object, const std::string& key, std::string_view source) {
  if (!object.is_object()) fail(ErrorCode::kInvalidArgument, "{}: expected a JSON object", source);
  const auto it = object.find(key);
  if (it == object.end()) fail(ErrorCode::kInvalidArgument, "{}: '{}' is missing", source, key);
  return *it;
}

template <typename T>
T integerMember(const Json& object, const std::string& key, std::string_view source) {
  const Json& value = member(object, key, source);
  if (value.is_number_unsigned()) {
    const auto v = value.get<uint64_t>();
    if (v <= static_cast<uint64_t>(std::numeric_limits<T>::max())) return static_cast<T>(v);
  } else if (value.is_number_integer()) {
    const auto v = value.get<int64_t>();
    if (v >= 0 ? static_cast<uint64_t>(v) <= static_cast<uint64_t>(std::numeric_limits<T>::max())
               : v >= static_cast<int64_t>(std::numeric_limits<T>::min())) {
      return static_cast<T>(v);
    }
  }
  fail(ErrorCode::kInvalidArgument, "{}: '{}' must be an integer in range", source, key);
}
}  // namespace

Json parseJson(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return parse<Json>(text, source, limits);
}
OrderedJson parseOrderedJson(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return parse<OrderedJson>(text, source, limits);
}
Json readJsonFile(const std::filesystem::path& path, const JsonLimits& limits) {
  return parseJson(readFile(path, limits.max_bytes), path.string(), limits);
}

template <>
int32_t jsonGet<int32_t>(const Json& o, const std::string& k, std::string_view s) {
  return integerMember<int32_t>(o, k, s);
}
template <>
int64_t jsonGet<int64_t>(const Json& o, const std::string& k, std::string_view s) {
  return integerMember<int64_t>(o, k, s);
}
template <>
uint64_t jsonGet<uint64_t>(const Json& o, const std::string& k, std::string_view s) {
  return integerMember<uint64_t>(o, k, s);
}
template <>
double jsonGet<double>(const Json& o, const std::string& k, std::string_view s) {
  const Json& value = member(o, k, s);
  if (!value.is_number()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a number", s, k);
  return value.get<double>();
}
template <>
float jsonGet<float>(const Json& o, const std::string& k, std::string_view s) {
  return static_cast<float>(jsonGet<double>(o, k, s));
}
template <>
bool jsonGet<bool>(const Json& o, const std::string& k, std::string_view s) {
  const Json& value = member(o, k, s);
  if (!value.is_boolean()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be true or false", s, k);
  return value.get<bool>();
}
template <>
std::string jsonGet<std::string>(const Json& o, const std::string& k, std::string_view s) {
  const Json& value = member(o, k, s);
  if (!value.is_string()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a string", s, k);
  return value.get<std::string>();
}

}  // namespace chorus
