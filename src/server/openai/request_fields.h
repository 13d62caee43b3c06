// Tables of the fields that a request may have. Each is served, or inert, or makes the server refuse the request.
// Fields that no table names are ignored. The parsers of requests and /openapi.json both use these tables.
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
  // Name of the field, such as "top_k". "nvext.top_k" is the member "top_k" of the object "nvext"; "nvext.*" is each
  // member of it that no other row names.
  std::string_view name;
  FieldUse use;
  // Only for refused fields: what to do instead. It completes the sentence "'name' is not supported: ...".
  std::string_view instead = {};
  // Only for refused fields: a JSON array of the values that ask for nothing. null is always one of them.
  std::string_view harmless = R"([false, "", [], {}])";
  // Only for refused fields: another field of the request. If its value is "none" or {"type": "none"}, this field asks
  // for nothing.
  std::string_view disabled_by = {};
  // Only for served fields: the JSON schema of the values. null counts as absent, so it is not part of the schema.
  std::string_view schema = {};
  bool required = false;
};

struct FieldTable {
  std::string_view name;    // of its component in /openapi.json
  std::string_view title;   // of its section in docs/compatibility.md
  std::string_view prefix;  // of its fields' names in that section
  std::span<const RequestField> rows;
};

// The kinds of objects: bodies of requests, and objects inside them.
enum class FieldOwner {
  kCompletion,
  kChat,
  kMessage,
  kContentPart,
  kResponse,
  kInputItem,
  kInputPart,
  kAnthropic,
  kCountTokens,
  kAnthropicMessage,
  kContentBlock,
  kTokenize,
  kDetokenize,
};

std::span<const FieldTable> fieldTables();
// The tables of one kind of object. A table may belong to several kinds.
std::vector<const FieldTable*> requestFields(FieldOwner owner);

// Throws ApiError (status 400, code unsupported_parameter) that names the first refused field which asks for something.
void refuseUnservedFields(const FieldReader& object, FieldOwner owner);

}  // namespace chorus::server
