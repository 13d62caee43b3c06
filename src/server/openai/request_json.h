// Request bodies as JSON, and typed, range-checked access to their fields. Every fault is an ApiError with status 400
// that names the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus::server {

// Parses an object. Beyond base/json.h's limits it bounds what is costly to hold: members of one object and values.
OrderedJson parseRequestJson(std::string_view body);

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
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const;

 private:
  const OrderedJson& object_;
  std::string path_;
};

}  // namespace chorus::server
