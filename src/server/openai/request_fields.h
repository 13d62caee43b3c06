// What becomes of each field that a request of OpenAI's API may have: the field is served, it is inert, or the request
// is refused. Fields that no table names are ignored.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "server/openai/request_json.h"

namespace chorus::server {

enum class FieldUse {
  kServed,
  kInert,   // accepted with any value; it has no effect on the answer
  kRefused  // accepted with a value that asks for nothing, and otherwise refused by name
};

struct RequestField {
  // "top_k"; "nvext.top_k" is a member of an object, and "nvext.*" is each member of it that no earlier row names.
  std::string_view name;
  FieldUse use;
  // Only of refused fields: what to do instead. It completes the sentence "'name' is not supported: ...".
  std::string_view instead = {};
  // Only of refused fields: a JSON array of the values that ask for nothing. null is always one of them.
  std::string_view harmless = R"([false, "", [], {}])";
  // Only of refused fields: another field of the request. Where that one is "none", this one asks for nothing.
  std::string_view disabled_by = {};
};

enum class FieldOwner { kCompletion, kChat, kMessage, kContentPart };

// The tables of one kind of object. A table may belong to several kinds.
std::vector<std::span<const RequestField>> requestFields(FieldOwner owner);

// Throws ApiError (status 400, code unsupported_parameter) that names the first refused field which asks for something.
void refuseUnservedFields(const FieldReader& object, FieldOwner owner);

}  // namespace chorus::server
