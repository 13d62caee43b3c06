// Request bodies as JSON, and typed, range-checked access to their fields. Every fault is an ApiError with status 400
// that names the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/work_meter.h"
#include "server/http/client.h"

namespace chorus::server {

// Parses an object with parseExactJson. In addition to the limits of base/json.h, it limits the members of one object
// and the memory of the result: estimateJsonMemory() of the body is added to `memory` before anything is built. Charges
// the meter. Throws ApiError (400; 429 or 503 if the memory is not granted) and what the meter throws.
OrderedJson parseRequestJson(std::string_view body, WorkMeter& meter, ClientCharge& memory);
// Overload without a limit of work and without a charge.
OrderedJson parseRequestJson(std::string_view body);

// Upper bound in bytes on the memory of the parsed text, also while it is being parsed. Throws ApiError (400) if an
// object has too many members, or if the bound is above kMaxJsonMemory.
size_t estimateJsonMemory(std::string_view text);
inline constexpr size_t kMaxJsonMemory = size_t{96} << 20;

// Compact JSON text, with malformed UTF-8 replaced.
std::string toText(const OrderedJson& json);

// Moves a member out of an object and leaves null in its place. Returns null if there is no such member.
OrderedJson takeMember(OrderedJson& object, std::string_view name);

// Reads members of one object; null counts as absent. The object must outlive the reader.
class FieldReader {
 public:
  // path names the object in errors: "" for the body, "stream_options", "messages[2]".
  explicit FieldReader(const OrderedJson& object, std::string path = "");

  const OrderedJson* find(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  // Finite, low <= value <= high.
  std::optional<double> number(std::string_view name, double low, double high) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::string> string(std::string_view name) const;

  // Full name of a member, for errors.
  std::string nameOf(std::string_view name) const;
  // Refuses a value that has the right type (invalid_value). A number with a fraction has not the type of an integer.
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const;
  // Refuses a value that has the wrong type (invalid_type).
  [[noreturn]] void refuseType(std::string_view name, std::string_view expected) const;

 private:
  const OrderedJson& object_;
  std::string path_;
};

}  // namespace chorus::server
