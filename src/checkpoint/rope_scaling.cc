#include "checkpoint/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace chorus {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

bool isPositive(double value) { return std::isfinite(value) && value > 0.0; }

// Reads the members of one object, and keeps the keys that it was asked for.
class Members {
 public:
  Members(const Json& object, std::string_view where, const std::vector<std::string_view>& other_keys)
      : object_(object), where_(where), keys_(other_keys) {
    keys_.insert(keys_.end(), {"rope_type", "type"});
  }

  // A number above 0. A missing one is an error.
  double positive(const char* key) {
    keys_.push_back(key);
    return checked(key, jsonGet<double>(object_, key, where_));
  }
  // nullopt: missing or null.
  std::optional<double> optionalPositive(const char* key) {
    keys_.push_back(key);
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return std::nullopt;
    return checked(key, jsonGet<double>(object_, key, where_));
  }
  // transformers takes 0 for a missing value.
  double nonZero(const char* key, double otherwise) {
    keys_.push_back(key);
    const auto value = jsonGetOr<double>(object_, key, 0.0, where_);
    return value == 0.0 ? otherwise : checked(key, value);
  }
  bool flag(const char* key, bool otherwise) {
    keys_.push_back(key);
    return jsonGetOr(object_, key, otherwise, where_);
  }
  std::vector<float> positives(const char* key) {
    keys_.push_back(key);
    const auto found = object_.find(key);
    if (found == object_.end() || !found->is_array()) {
      fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list of numbers", where_, key);
    }
    std::vector<float> values;
    values.reserve(found->size());
    for (const Json& item : *found) {
      const float value = item.is_number() ? item.get<float>() : 0.0f;
      if (!isPositive(value)) {
        fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list of numbers above 0", where_, key);
      }
      values.push_back(value);
    }
    return values;
  }
  bool has(const char* key) const { return object_.contains(key); }

  // A key that changes nothing.
  void ignore(const char* key) { keys_.push_back(key); }

  void refuseOthers(std::string_view type) const {
    for (const auto& [key, value] : object_.items()) {
      if (value.is_null() || std::ranges::find(keys_, key) != keys_.end()) continue;
      fail(ErrorCode::kUnsupported, "{}: key '{}' is not supported with rope_type '{}'", where_, key, type);
    }
  }

 private:
  double checked(const char* key, double value) const {
    if (!isPositive(value)) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be above 0", where_, key);
    return value;
  }

  const Json& object_;
  std::string_view where_;
  std::vector<std::string_view> keys_;
};

double originalLength(Members& members, std::string_view where, const RopeLengths& lengths) {
  const std::optional<double> inside = members.optionalPositive(kOriginal);
  if (lengths.original_length) {
    if (isPositive(*lengths.original_length)) return *lengths.original_length;
  } else if (inside) {
    return *inside;
  } else if (lengths.max_position_embeddings > 0) {
    return static_cast<double>(lengths.max_position_embeddings);
  }
  fail(ErrorCode::kInvalidArgument, "{}: '{}' must be above 0", where, kOriginal);
}

// The ratio of the model's positions to the original ones, for configs without a factor.
double ratioOf(const RopeScaling& scaling, std::string_view where, const RopeLengths& lengths) {
  if (lengths.max_position_embeddings <= 0) {
    fail(ErrorCode::kInvalidArgument, "{}: 'factor' is missing, and so is max_position_embeddings", where);
  }
  return static_cast<double>(lengths.max_position_embeddings) / scaling.original_max_position_embeddings;
}

double yarnScale(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

void readYarn(Members& members, std::string_view where, const RopeLengths& lengths, RopeScaling& scaling) {
  members.ignore("finetuned");  // written by the first models with YaRN
  scaling.original_max_position_embeddings = originalLength(members, where, lengths);
  if (!members.has("factor")) members.positive("factor");
  const std::optional<double> factor = members.optionalPositive("factor");
  scaling.factor = factor ? *factor : ratioOf(scaling, where, lengths);
  const double mscale = members.nonZero("mscale", 0.0), all_dims = members.nonZero("mscale_all_dim", 0.0);
  const std::optional<double> attention = members.optionalPositive("attention_factor");
  if (attention) {
    scaling.attention_factor = *attention;
  } else if (mscale != 0.0 && all_dims != 0.0) {
    scaling.attention_factor = yarnScale(scaling.factor, mscale) / yarnScale(scaling.factor, all_dims);
  } else {
    scaling.attention_factor = yarnScale(scaling.factor, 1.0);
  }
  scaling.beta_fast = members.nonZero("beta_fast", scaling.beta_fast);
  scaling.beta_slow = members.nonZero("beta_slow", scaling.beta_slow);
  scaling.truncate = members.flag("truncate", true);
}

void readLongRope(Members& members, std::string_view where, const RopeLengths& lengths, RopeScaling& scaling) {
  scaling.original_max_position_embeddings = originalLength(members, where, lengths);
  const std::optional<double> factor = members.optionalPositive("factor");
  const std::optional<double> attention = members.optionalPositive("attention_factor");
  scaling.factor = factor ? *factor : attention ? 1.0 : ratioOf(scaling, where, lengths);
  if (attention) {
    scaling.attention_factor = *attention;
  } else if (scaling.factor > 1.0) {
    scaling.attention_factor =
        std::sqrt(1.0 + std::log(scaling.factor) / std::log(scaling.original_max_position_embeddings));
  }
  std::vector<float> of_short = members.positives("short_factor");
  scaling.factors = {std::move(of_short), members.positives("long_factor")};
}
}  // namespace

RopeScaling readRopeScaling(const Json& object, std::string_view type, std::string_view where,
                            const RopeLengths& lengths, const std::vector<std::string_view>& other_keys) {
  Members members(object, where, other_keys);
  RopeScaling scaling;
  if (type == "linear") {
    scaling.type = RopeScalingType::kLinear;
    scaling.factor = members.positive("factor");
  } else if (type == "llama3") {
    scaling.type = RopeScalingType::kLlama3;
    scaling.factor = members.positive("factor");
    scaling.low_freq_factor = members.positive("low_freq_factor");
    scaling.high_freq_factor = members.positive("high_freq_factor");
    scaling.original_max_position_embeddings = originalLength(members, where, lengths);
  } else if (type == "yarn") {
    scaling.type = RopeScalingType::kYarn;
    readYarn(members, where, lengths, scaling);
  } else if (type == "longrope") {
    scaling.type = RopeScalingType::kLongRope;
    readLongRope(members, where, lengths, scaling);
  } else if (type != "default" && type != "none") {
    fail(ErrorCode::kUnsupported, "{}: rope_type '{}' is not supported; default, linear, llama3, yarn and longrope are",
         where, type);
  }
  members.refuseOthers(type);
  return scaling;
}

Json ropeScalingJson(const RopeScaling& scaling) {
  switch (scaling.type) {
    case RopeScalingType::kNone:
      return nullptr;
    case RopeScalingType::kLinear:
      return {{"type", "linear"}, {"factor", scaling.factor}};
    case RopeScalingType::kLlama3:
      return {{"type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {kOriginal, scaling.original_max_position_embeddings}};
    case RopeScalingType::kYarn:
      return {{"type", "yarn"},
              {"factor", scaling.factor},
              {"attention_factor", scaling.attention_factor},
              {"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"truncate", scaling.truncate},
              {kOriginal, scaling.original_max_position_embeddings}};
    case RopeScalingType::kLongRope:
      return {{"type", "longrope"},
              {"factor", scaling.factor},
              {"attention_factor", scaling.attention_factor},
              {"short_factor", scaling.factors.ofShort()},
              {"long_factor", scaling.factors.ofLong()},
              {kOriginal, scaling.original_max_position_embeddings}};
  }
  return nullptr;
}

void checkRopeScaling(const RopeScaling& scaling, int64_t rotary_dims, double base, std::string_view source) {
  if (!isPositive(scaling.attention_factor)) {
    fail(ErrorCode::kInvalidArgument, "{}: RoPE scaling: the attention factor {} must be above 0", source,
         scaling.attention_factor);
  }
  if (scaling.type == RopeScalingType::kLlama3 && scaling.high_freq_factor <= scaling.low_freq_factor) {
    fail(ErrorCode::kInvalidArgument, "{}: llama3 RoPE scaling needs low_freq_factor < high_freq_factor", source);
  }
  if (scaling.type == RopeScalingType::kYarn && !(base > 1.0)) {
    fail(ErrorCode::kInvalidArgument, "{}: yarn RoPE scaling needs a base above 1, not {}", source, base);
  }
  if (scaling.type != RopeScalingType::kLongRope) return;
  const LongRopeFactors& factors = scaling.factors;
  for (const auto& [key, count] : {std::pair("short_factor", std::ssize(factors.ofShort())),
                                   std::pair("long_factor", std::ssize(factors.ofLong()))}) {
    if (count == rotary_dims / 2) continue;
    fail(ErrorCode::kInvalidArgument, "{}: longrope: '{}' has {} numbers, but a head has {} rotated pairs", source, key,
         count, rotary_dims / 2);
  }
}

}  // namespace chorus
