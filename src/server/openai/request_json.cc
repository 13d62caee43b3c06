#include "server/openai/request_json.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/exact_json.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxMembers = 1024;
constexpr size_t kMaxBytes = size_t{64} << 20;

// Bytes of memory. While a vector grows, it holds up to three times the size of its elements. The parser collects a
// string in a buffer that grows in the same way, and then copies it.
constexpr size_t kValueBytes = 3 * sizeof(OrderedJson);
constexpr size_t kMemberBytes = 3 * (sizeof(std::string) + sizeof(OrderedJson));
constexpr size_t kContainerBytes = 64;
constexpr size_t kStringBytes = 48;
constexpr size_t kStringFactor = 3;
// Integers of this many digits may not fit 64 bits; they are kept as text.
constexpr size_t kWideDigits = 19;

// Bytes of work for one byte of text.
constexpr uint64_t kParseWork = 8;

}  // namespace

// An object may have at most kMaxMembers members, because a member is found by linear search: reading all members takes
// time quadratic in their number.
size_t estimateJsonMemory(std::string_view text) {
  std::vector<size_t> members;
  size_t bytes = kContainerBytes, digits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    digits = text[i] >= '0' && text[i] <= '9' ? digits + 1 : 0;
    if (digits == kWideDigits) bytes += 2 * kContainerBytes + kStringFactor * kWideDigits;
    if (digits > kWideDigits) bytes += kStringFactor;
    switch (text[i]) {
      case '"': {
        const size_t begin = i;
        for (++i; i < text.size() && text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        bytes += kStringBytes + kStringFactor * (i - begin);
        break;
      }
      case '{':
      case '[':
        // The first value of a container has no comma before it.
        bytes += kContainerBytes + kValueBytes;
        if (members.size() < kMaxDepth + 1) members.push_back(0);
        break;
      case '}':
      case ']':
        if (!members.empty()) members.pop_back();
        break;
      case ':':
        bytes += kMemberBytes;
        if (!members.empty() && ++members.back() > kMaxMembers) {
          throw ApiError::invalid(fmt::format("The request body has an object of more than {} members.", kMaxMembers));
        }
        break;
      case ',':
        bytes += kValueBytes;
        break;
      default:
        break;
    }
    if (bytes > kMaxJsonMemory) {
      throw ApiError::invalid("The request body holds too many values.", std::nullopt, "request_too_complex");
    }
  }
  return bytes;
}

OrderedJson parseRequestJson(std::string_view body, WorkMeter& meter, ClientCharge& memory) {
  meter.charge(body.size() * kParseWork);
  const size_t bytes = estimateJsonMemory(body);
  if (memory.client() && bytes > memory.client()->memory().large.limit()) {
    throw ApiError::invalid("The request body holds more values than one client's share of the server's memory.",
                            std::nullopt, "request_too_complex");
  }
  addCharge(memory, bytes);
  OrderedJson json;
  try {
    json = parseExactJson(body, "request body", {.max_bytes = kMaxBytes, .max_depth = kMaxDepth});
  } catch (const Error& e) {
    throw ApiError::invalid(fmt::format("The request body is not valid JSON. ({})", e.what()));
  } catch (const OrderedJson::exception&) {
    throw ApiError::invalid("The request body is not valid JSON. (A number is out of range.)");
  }
  if (!json.is_object()) throw ApiError::invalid("The request body must be a JSON object.");
  return json;
}

OrderedJson parseRequestJson(std::string_view body) {
  WorkMeter meter;
  ClientCharge memory;
  return parseRequestJson(body, meter, memory);
}

std::string toText(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

OrderedJson takeMember(OrderedJson& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(std::string(name));
  if (at == object.end()) return nullptr;
  return std::exchange(*at, nullptr);
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

void FieldReader::refuseType(std::string_view name, std::string_view expected) const {
  const std::string full = nameOf(name);
  throw ApiError::invalid(fmt::format("Invalid type for '{}': expected {}.", full, expected), full, "invalid_type");
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
    if (wideIntegerDigits(*value) || std::abs(real) > 9e15) refuse(name, fmt::format("expected {} to {}", low, high));
    // Some clients write whole numbers as 5.0.
    if (real != std::floor(real)) refuseType(name, "an integer");
    result = static_cast<int64_t>(real);
  }
  if (result < low || result > high) refuse(name, fmt::format("expected {} to {}, got {}", low, high, result));
  return result;
}

std::optional<double> FieldReader::number(std::string_view name, double low, double high) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto digits = wideIntegerDigits(*value);
  if (!value->is_number() && !digits) refuseType(name, "a number");
  const double result = digits ? std::strtod(std::string(*digits).c_str(), nullptr) : value->get<double>();
  if (!(result >= low && result <= high)) refuse(name, fmt::format("expected {} to {}", low, high));
  return result;
}

std::optional<bool> FieldReader::boolean(std::string_view name) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuseType(name, "true or false");
  return value->get<bool>();
}

std::optional<std::string> FieldReader::string(std::string_view name) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuseType(name, "a string");
  return value->get<std::string>();
}

}  // namespace chorus::server
