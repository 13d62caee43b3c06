// Texts that requests give as a string or in parts.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/openai/request_fields.h"
#include "server/openai/request_json.h"

namespace chorus::server {

// The kinds of parts that a message's content may have.
struct PartRules {
  FieldOwner owner;                         // of a part's fields
  std::span<const std::string_view> types;  // A part of the type "refusal" has its text in a member of that name.
};

// Both functions throw ApiError with status 400 that names the field.

// Joins the texts of the parts with newlines. parts: an array, the value of the member `field`.
std::string joinTextParts(const FieldReader& object, std::string_view field, const OrderedJson& parts,
                          const PartRules& rules);
// Returns the member `field`, a string or an array of parts, as one text.
std::string textOrParts(const FieldReader& object, std::string_view field, const PartRules& rules);

}  // namespace chorus::server
