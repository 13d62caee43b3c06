#include "server/openai/option_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/exact_json.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

}  // namespace

std::vector<std::string> parseStop(const FieldReader& fields, std::string_view name) {
  const OrderedJson* stop = fields.find(name);
  std::vector<std::string> out;
  if (stop == nullptr) return out;
  const auto add = [&](const OrderedJson& one) {
    if (!one.is_string()) fields.refuseType(name, "a string or an array of strings");
    out.push_back(one.get<std::string>());
    if (out.back().empty()) fields.refuse(name, "a stop sequence must not be empty");
    if (out.back().size() > kMaxStopBytes) {
      fields.refuse(name, fmt::format("a stop sequence may have at most {} bytes", kMaxStopBytes));
    }
  };
  if (!stop->is_array()) {
    add(*stop);
    return out;
  }
  if (stop->size() > kMaxStops) fields.refuse(name, fmt::format("at most {} stop sequences", kMaxStops));
  for (const OrderedJson& one : *stop) add(one);
  return out;
}

std::vector<int32_t> tokenIds(const FieldReader& fields, std::string_view name, const OrderedJson& array) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const OrderedJson& one : array) {
    if (!one.is_number_integer() && !wideIntegerDigits(one))
      fields.refuseType(name, "token ids: integers of 0 or more");
    if (!one.is_number_unsigned() || one.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId)) {
      fields.refuse(name, "expected token ids: integers of 0 or more");
    }
    ids.push_back(static_cast<int32_t>(one.get<uint64_t>()));
  }
  return ids;
}

void checkTokenIds(std::string_view field, std::span<const int32_t> ids, int32_t vocab) {
  const auto beyond = std::ranges::find_if(ids, [vocab](int32_t id) { return id >= vocab; });
  if (beyond == ids.end()) return;
  throw ApiError::invalid(fmt::format("Invalid value for '{}': token id {} is not below the vocabulary's size of {}.",
                                      field, *beyond, vocab),
                          std::string(field), "invalid_value");
}

void parseMaxTokens(const FieldReader& fields, const std::string& name, int64_t least, GenerationOptions& options) {
  const auto value = fields.integer(name, least, std::numeric_limits<int32_t>::max());
  if (!value) return;
  options.max_tokens = static_cast<int32_t>(*value);
  options.max_tokens_field = name;
}

GenerationOptions parseSharedOptions(const FieldReader& fields) {
  GenerationOptions options;
  const auto model = fields.string("model");
  if (!model || model->empty()) {
    throw ApiError::invalid("You must provide a model parameter.", "model", "missing_required_parameter");
  }
  options.model = *model;
  options.adapters = parseAdapterTerms(fields);
  options.sampling = parseSamplingFields(fields);
  if (const OrderedJson* ids = fields.find("stop_token_ids")) {
    if (!ids->is_array()) fields.refuseType("stop_token_ids", "an array of token ids");
    if (ids->size() > kMaxStops) fields.refuse("stop_token_ids", fmt::format("at most {} token ids", kMaxStops));
    options.stop_token_ids = tokenIds(fields, "stop_token_ids", *ids);
  }
  options.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  options.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  options.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  options.stream = fields.boolean("stream").value_or(false);
  return options;
}

}  // namespace chorus::server
