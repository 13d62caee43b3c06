#include "base/json.h"

#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/exact_json.h"
#include "base/file.h"
#include "base/git_lfs.h"
#include "base/ordered_builder.h"

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

// Refuses duplicate keys, for which the document parser would silently overwrite the first value.
class UniqueKeys final : public JsonEvents {
 public:
  UniqueKeys(std::string_view source, std::string_view map) : source_(source) {
    if (!map.empty()) path_ = map;
  }

  bool key(string_t& key) override {
    Object& object = open_.back();
    if (!object.isMap() && !object.keys.insert(key).second)
      fail(ErrorCode::kCorrupt, "{}: key '{}' appears twice", source_, key);
    object.path_of_member = pathBelow(object.path, key);
    return true;
  }
  bool start_object(std::size_t) override {
    open_.push_back({open_.empty() ? path_ : open_.back().path_of_member, std::nullopt, {}});
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }

 private:
  // The path from an object to the map; nullopt if the map is not in the object. Paths are views of the given one: a
  // path that is built for each object would cost the length of all keys around it.
  using Path = std::optional<std::string_view>;
  struct Object {
    Path path;
    Path path_of_member;         // the path from the value of the last key
    std::set<std::string> keys;  // not a hash table, because an attacker could choose keys that collide
    bool isMap() const { return path && path->empty(); }
  };

  static Path pathBelow(const Path& path, std::string_view key) {
    if (!path || !path->starts_with('/') || !path->substr(1).starts_with(key)) return std::nullopt;
    const std::string_view rest = path->substr(1 + key.size());
    return rest.empty() || rest.starts_with('/') ? Path(rest) : std::nullopt;
  }

  std::string_view source_;
  Path path_;  // from the document
  std::vector<Object> open_;
};

[[noreturn]] void failRange(std::string_view source) {
  fail(ErrorCode::kCorrupt, "{}: the JSON has a number outside the range of a double", source);
}

[[noreturn]] void failAt(std::string_view text, size_t position, std::string_view source) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < std::min(position, text.size()); ++i) {
    if (text[i] == '\n')
      ++line, column = 1;
    else
      ++column;
  }
  refuseGitLfsPointer(text, source);
  fail(ErrorCode::kCorrupt, "{}: malformed JSON at line {} column {}", source, line, column);
}

Json build(std::string_view text, std::string_view) { return Json::parse(text.begin(), text.end()); }

template <bool kExact>
OrderedJson buildOrdered(std::string_view text, std::string_view source) {
  OrderedBuilder builder(kExact);
  if (OrderedJson::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  if (builder.outOfRange()) failRange(source);
  failAt(text, builder.position() == 0 ? size_t{0} : builder.position() - 1, source);
}

void checkText(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    fail(ErrorCode::kCorrupt, "{}: the JSON has {} bytes; the limit is {}", source, text.size(), limits.max_bytes);
  }
  checkDepth(text, source, limits.max_depth);
  // The parser would treat a NUL byte as the end of the text and ignore the rest.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) failAt(text, nul, source);
}

template <typename J>
J parse(std::string_view text, std::string_view source, const JsonLimits& limits,
        J (*build_document)(std::string_view text, std::string_view source)) {
  checkText(text, source, limits);
  try {
    J json = build_document(text, source);
    if (limits.unique_keys) {
      UniqueKeys unique(source, limits.map);
      Json::sax_parse(text.begin(), text.end(), &unique);
    }
    return json;
  } catch (const nlohmann::json::parse_error& e) {
    failAt(text, e.byte == 0 ? size_t{0} : e.byte - 1, source);
  } catch (const nlohmann::json::exception&) {
    failRange(source);
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

bool JsonEvents::parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
  error_position_ = position == 0 ? 0 : position - 1;
  malformed_ = dynamic_cast<const nlohmann::json::parse_error*>(&error) != nullptr;
  return false;
}

void parseJsonEvents(std::string_view text, std::string_view source, const JsonLimits& limits, JsonEvents& events) {
  checkText(text, source, limits);
  if (Json::sax_parse(text.begin(), text.end(), &events)) return;
  if (events.malformed_) failAt(text, events.error_position_, source);
  failRange(source);
}

Json parseJson(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return parse(text, source, limits, build);
}
OrderedJson parseOrderedJson(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return parse(text, source, limits, buildOrdered<false>);
}
OrderedJson parseExactJson(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return parse(text, source, limits, buildOrdered<true>);
}
std::optional<std::string_view> wideIntegerDigits(const OrderedJson& value) {
  if (!value.is_binary() || value.get_binary().subtype() != OrderedBuilder::kWideInteger) return std::nullopt;
  const auto& digits = value.get_binary();
  return std::string_view(reinterpret_cast<const char*>(digits.data()), digits.size());
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
