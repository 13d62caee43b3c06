#include "server/openai/request_json.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxMembers = 1024;
constexpr size_t kMaxValues = size_t{2} << 20;
constexpr size_t kMaxBytes = size_t{64} << 20;

// An ordered object is searched member by member, so many members would cost the square of their number, and each
// value takes many times its byte in the text: both are counted before anything is built.
void checkBreadth(std::string_view text) {
  std::vector<size_t> members;
  size_t values = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inString) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inString = false;
      continue;
    }
    switch (c) {
      case '"':
        inString = true;
        break;
      case '{':
      case '[':
        if (members.size() < kMaxDepth + 1) members.push_back(0);
        break;
      case '}':
      case ']':
        if (!members.empty()) members.pop_back();
        break;
      case ':':
        if (!members.empty() && ++members.back() > kMaxMembers) {
          throw ApiError::invalid(fmt::format("The request body has an object of more than {} members.", kMaxMembers));
        }
        break;
      case ',':
        if (++values > kMaxValues) {
          throw ApiError::invalid(fmt::format("The request body holds more than {} values.", kMaxValues));
        }
        break;
      default:
        break;
    }
  }
}

}  // namespace

OrderedJson parseRequestJson(std::string_view body) {
  checkBreadth(body);
  OrderedJson json;
  try {
    json = parseOrderedJson(body, "request body", {.max_bytes = kMaxBytes, .max_depth = kMaxDepth});
  } catch (const Error& e) {
    throw ApiError::invalid(fmt::format("The request body is not valid JSON. ({})", e.what()));
  } catch (const OrderedJson::exception&) {
    throw ApiError::invalid("The request body is not valid JSON. (A number is out of range.)");
  }
  if (!json.is_object()) throw ApiError::invalid("The request body must be a JSON object.");
  return json;
}

FieldReader::FieldReader(const OrderedJson& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) {
    throw ApiError::invalid(fmt::format("Invalid type for '{}': expected an object.", path_), path_, "invalid_type");
  }
}

std::string FieldReader::nameOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::refuse(std::string_view name, std::string_view why) const {
  const std::string full = nameOf(name);
  throw ApiError::invalid(fmt::format("Invalid value for '{}': {}.", full, why), full, "invalid_value");
}

const OrderedJson* FieldReader::find(std::string_view name) const {
  const auto it = object_.find(std::string(name));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t low, int64_t high) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  int64_t result = 0;
  if (value->is_number_unsigned()) {
    const auto wide = value->get<uint64_t>();
    if (wide > static_cast<uint64_t>(INT64_MAX)) refuse(name, fmt::format("expected {} to {}", low, high));
    result = static_cast<int64_t>(wide);
  } else if (value->is_number_integer()) {
    result = value->get<int64_t>();
  } else {
    const double real = value->is_number_float() ? value->get<double>() : NAN;
    // Some clients write whole numbers as 5.0.
    if (!(std::abs(real) <= 9e15) || real != std::floor(real)) refuse(name, "expected an integer");
    result = static_cast<int64_t>(real);
  }
  if (result < low || result > high) refuse(name, fmt::format("expected {} to {}, got {}", low, high, result));
  return result;
}

std::optional<double> FieldReader::number(std::string_view name, double low, double high) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(name, "expected a number");
  const auto result = value->get<double>();
  if (!(result >= low && result <= high)) refuse(name, fmt::format("expected {} to {}", low, high));
  return result;
}

std::optional<bool> FieldReader::boolean(std::string_view name) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "expected true or false");
  return value->get<bool>();
}

std::optional<std::string> FieldReader::string(std::string_view name) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "expected a string");
  return value->get<std::string>();
}

}  // namespace chorus::server
