// Reads the fields that several kinds of generation requests share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/openai_types.h"
#include "server/openai/request_json.h"

namespace chorus::server {

// All of these throw ApiError with status 400 that names the field.

// Reads the fields of the tables ModelFields and SharedFields (field_tables.cc). "model" is required.
GenerationOptions parseSharedOptions(const FieldReader& fields);
// Reads a stop string or an array of stop strings; none if the field is absent.
std::vector<std::string> parseStop(const FieldReader& fields, std::string_view name);
// Reads a limit on the tokens of the answer, from `least` on. Leaves the options unchanged if the field is absent.
void parseMaxTokens(const FieldReader& fields, const std::string& name, int64_t least, GenerationOptions& options);
// array: the value of the field `name`, an array.
std::vector<int32_t> tokenIds(const FieldReader& fields, std::string_view name, const OrderedJson& array);
// Refuses ids that are not below the size of the vocabulary.
void checkTokenIds(std::string_view field, std::span<const int32_t> ids, int32_t vocab);

}  // namespace chorus::server
