#include "checkpoint/config.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

constexpr int64_t kMaxExtent = INT32_MAX;
constexpr int32_t kMaxLayers = 4096;
constexpr int32_t kMaxRanks = 1024;  // of each kind of parallelism
constexpr int32_t kMaxWorldSize = 4096;
constexpr size_t kMaxExcludedModules = 1024;
constexpr size_t kMaxPatternBytes = 256;
constexpr size_t kMaxConfigBytes = size_t{4} << 20;

constexpr std::pair<std::string_view, PositionEmbedding> kPositionEmbeddings[] = {
    {"learned_absolute", PositionEmbedding::kLearnedAbsolute}, {"rope_gptj", PositionEmbedding::kRopeGptj},
    {"rope_gpt_neox", PositionEmbedding::kRopeGptNeox},        {"alibi", PositionEmbedding::kAlibi},
    {"alibi_with_scale", PositionEmbedding::kAlibiWithScale},  {"relative", PositionEmbedding::kRelative}};
// TensorRT-LLM's names of rope_gpt_neox with a RoPE scaling.
constexpr const char* kLongRopePositions = "long_rope";
constexpr const char* kYarnPositions = "yarn";

constexpr std::string_view kQuantAlgos[] = {"W8A16",
                                            "W4A16",
                                            "W8A8",
                                            "W4A8",
                                            "W8A8_PER_TOKEN",
                                            "W4A16_AWQ",
                                            "W4A8_AWQ",
                                            "W8A16_GPTQ",
                                            "W4A16_GPTQ",
                                            "W8A8_SQ_PER_CHANNEL",
                                            "W8A8_SQ_PER_TENSOR_PLUGIN",
                                            "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN",
                                            "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN",
                                            "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN",
                                            "W4A8_QSERVE_PER_GROUP",
                                            "W4A8_QSERVE_PER_CHANNEL",
                                            "FP8",
                                            "FP8_PER_CHANNEL_PER_TOKEN",
                                            "FP8_BLOCK_SCALES",
                                            "INT8",
                                            "MIXED_PRECISION",
                                            "NVFP4"};
constexpr std::string_view kKvCacheAlgos[] = {"FP8", "INT8", "NVFP4"};

// Keys that fromJson reads but toJson does not always write: some are alternative spellings, others are optional.
constexpr std::string_view kSpellings[] = {"rotary_dim",
                                           "rotary_pct",
                                           "share_embedding_table",
                                           "embedding_size",
                                           "weight_layout",
                                           "original_max_position_embeddings",
                                           "longrope_scaling_short_factors",
                                           "longrope_scaling_long_factors"};

template <size_t N>
bool contains(const std::string_view (&list)[N], std::string_view item) {
  return std::find(std::begin(list), std::end(list), item) != std::end(list);
}

// True when the key is present and its value is not null.
bool has(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && !it->is_null();
}

void checkSize(std::string_view source, const char* field, int64_t value, int64_t max = kMaxExtent) {
  if (value < 1 || value > max) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}; it must be from 1 to {}", source, field, value, max);
  }
}

DType floatType(const Json& json, const char* key, std::string_view fallback, std::string_view source) {
  const auto name = has(json, key) ? jsonGet<std::string>(json, key, source) : std::string(fallback);
  const auto dtype = dtypeFromName(name);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be float32, float16 or bfloat16, not '{}'", source, key, name);
  }
  return *dtype;
}

PositionEmbedding positionEmbedding(const std::string& name, std::string_view source) {
  for (const auto& [known, value] : kPositionEmbeddings) {
    if (known == name) return value;
  }
  if (name == kLongRopePositions || name == kYarnPositions) return PositionEmbedding::kRopeGptNeox;
  std::string known;
  for (const auto& entry : kPositionEmbeddings) known.append(known.empty() ? "" : ", ").append(entry.first);
  fail(ErrorCode::kUnsupported, "{}: position_embedding_type '{}' is not supported; known are {}", source, name, known);
}

// TensorRT-LLM's Phi-3 has longrope's values outside rotary_scaling.
constexpr const char* kShortFactors = "longrope_scaling_short_factors";
constexpr const char* kLongFactors = "longrope_scaling_long_factors";
constexpr const char* kOriginalLength = "original_max_position_embeddings";

RopeScaling rotaryScaling(const Json& json, const std::string& positions, int64_t max_positions,
                          std::string_view source) {
  RopeLengths lengths = {.max_position_embeddings = max_positions};
  if (has(json, kOriginalLength)) lengths.original_length = jsonGet<double>(json, kOriginalLength, source);
  RopeScaling scaling;
  if (has(json, "rotary_scaling")) {
    const Json& object = json.at("rotary_scaling");
    const std::string where = fmt::format("{}: rotary_scaling", source);
    if (!object.is_object()) fail(ErrorCode::kInvalidArgument, "{}: must be an object or null", where);
    const auto type = jsonGet<std::string>(object, has(object, "rope_type") ? "rope_type" : "type", where);
    scaling = readRopeScaling(object, type, where, lengths, {});
  } else if (positions == kLongRopePositions) {
    const Json factors = {{"short_factor", json.value(kShortFactors, Json())},
                          {"long_factor", json.value(kLongFactors, Json())}};
    const std::string where = fmt::format("{}: {} and {}", source, kShortFactors, kLongFactors);
    scaling = readRopeScaling(factors, "longrope", where, lengths, {});
  }
  if ((positions == kLongRopePositions && scaling.type != RopeScalingType::kLongRope) ||
      (positions == kYarnPositions && scaling.type != RopeScalingType::kYarn)) {
    fail(ErrorCode::kInvalidArgument, "{}: position_embedding_type '{}' needs rotary_scaling of type {}", source,
         positions, positions == kYarnPositions ? "yarn" : "longrope");
  }
  return scaling;
}

Mapping readMapping(const Json& json, std::string_view config_source) {
  Mapping mapping;
  if (!has(json, "mapping")) return mapping;
  const Json& object = json.at("mapping");
  const std::string source = fmt::format("{}: mapping", config_source);
  if (!object.is_object()) fail(ErrorCode::kInvalidArgument, "{}: must be an object", source);
  mapping.tp_size = jsonGetOr<int32_t>(object, "tp_size", 1, source);
  mapping.pp_size = jsonGetOr<int32_t>(object, "pp_size", 1, source);
  for (const int32_t size : {mapping.tp_size, mapping.pp_size}) {
    if (size < 1 || size > kMaxRanks) {
      fail(ErrorCode::kInvalidArgument, "{}: tp_size and pp_size must be from 1 to {}", source, kMaxRanks);
    }
  }
  for (const char* key : {"cp_size", "moe_ep_size", "attn_cp_size", "moe_cluster_size"}) {
    const auto value = jsonGetOr<int32_t>(object, key, 1, source);
    if (value != 1 && value != -1) fail(ErrorCode::kUnsupported, "{}: {} {} is not supported", source, key, value);
  }
  const auto world = jsonGetOr<int32_t>(object, "world_size", mapping.worldSize(), source);
  if (world != mapping.worldSize()) {
    fail(ErrorCode::kInvalidArgument,
         "{}: world_size must equal to tp_size * pp_size * cp_size, but got {} != {} * {} * 1", source, world,
         mapping.tp_size, mapping.pp_size);
  }
  return mapping;
}

std::optional<std::string> algorithm(const Json& object, const char* key, std::span<const std::string_view> known,
                                     std::string_view source) {
  if (!has(object, key)) return std::nullopt;
  auto name = jsonGet<std::string>(object, key, source);
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    fail(ErrorCode::kInvalidArgument, "{}: {} '{}' is unknown", source, key, name);
  }
  return name;
}

template <typename T>
std::vector<T> listOf(const Json& object, const char* key, std::string_view source) {
  try {
    return object.at(key).get<std::vector<T>>();
  } catch (const Json::exception&) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list of {}", source, key,
         std::is_same_v<T, std::string> ? "strings" : "numbers");
  }
}

// Patterns of modules, which are compared with the names of all tensors.
std::vector<std::string> excludedModules(const Json& object, std::string_view source) {
  auto patterns = listOf<std::string>(object, "exclude_modules", source);
  if (patterns.size() > kMaxExcludedModules) {
    fail(ErrorCode::kInvalidArgument, "{}: exclude_modules has {} patterns; the limit is {}", source, patterns.size(),
         kMaxExcludedModules);
  }
  for (const std::string& pattern : patterns) {
    if (pattern.size() <= kMaxPatternBytes) continue;
    fail(ErrorCode::kInvalidArgument, "{}: exclude_modules has a pattern of {} bytes; the limit is {}", source,
         pattern.size(), kMaxPatternBytes);
  }
  return patterns;
}

QuantConfig readQuantization(const Json& json, std::string_view config_source) {
  QuantConfig quant;
  if (!has(json, "quantization")) return quant;
  const Json& object = json.at("quantization");
  const std::string source = fmt::format("{}: quantization", config_source);
  if (!object.is_object()) fail(ErrorCode::kInvalidArgument, "{}: must be an object", source);
  constexpr std::string_view kKeys[] = {"quant_algo",      "kv_cache_quant_algo", "group_size",
                                        "smoothquant_val", "clamp_val",           "use_meta_recipe",
                                        "has_zero_point",  "pre_quant_scale",     "exclude_modules"};
  for (const auto& [key, value] : object.items()) {
    if (!contains(kKeys, key)) fail(ErrorCode::kInvalidArgument, "{}: unknown key '{}'", source, key);
  }
  quant.quant_algo = algorithm(object, "quant_algo", kQuantAlgos, source);
  quant.kv_cache_quant_algo = algorithm(object, "kv_cache_quant_algo", kKvCacheAlgos, source);
  if (quant.quant_algo && !has(object, "group_size")) {
    log::warn("{}: group_size is missing; assuming {}", source, quant.group_size);
  }
  quant.group_size = jsonGetOr(object, "group_size", quant.group_size, source);
  quant.smoothquant_val = jsonGetOr(object, "smoothquant_val", quant.smoothquant_val, source);
  if (has(object, "clamp_val")) {
    quant.clamp_val = listOf<double>(object, "clamp_val", source);
    if (quant.clamp_val->size() != 2) fail(ErrorCode::kInvalidArgument, "{}: clamp_val must be [low, high]", source);
  }
  quant.use_meta_recipe = jsonGetOr(object, "use_meta_recipe", quant.use_meta_recipe, source);
  quant.has_zero_point = jsonGetOr(object, "has_zero_point", quant.has_zero_point, source);
  quant.pre_quant_scale = jsonGetOr(object, "pre_quant_scale", quant.pre_quant_scale, source);
  if (has(object, "exclude_modules")) quant.exclude_modules = excludedModules(object, source);
  return quant;
}

template <typename T>
Json orNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// The keys that no member of ModelConfig holds (`held`: those that one does). Logs one warning with all keys that
// config_fields.h does not list.
Json extraKeys(const Json& json, const Json& held, std::string_view source) {
  Json extra = Json::object();
  std::vector<std::string> unknown;
  for (const auto& [key, value] : json.items()) {
    if (held.contains(key) || contains(kSpellings, key)) continue;
    extra[key] = value;
    if (!isConfigKey(key)) unknown.push_back(key);
  }
  if (!unknown.empty()) log::warn("{}: unknown keys are kept but not used: {}", source, listSome(unknown));
  return extra;
}

void checkDivides(std::string_view source, const char* field, int64_t value, const char* by_field, int64_t by) {
  if (value % by != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: {} {} is not a multiple of {} {}", source, field, value, by_field, by);
  }
}
}  // namespace

Json readModelConfigFile(const std::filesystem::path& path) {
  return readJsonFile(path, {.max_bytes = kMaxConfigBytes});
}

int64_t optionalSize(const Json& json, const char* key, std::string_view source) {
  if (!has(json, key)) return 0;
  const auto size = jsonGet<int64_t>(json, key, source);
  checkSize(source, key, size);
  return size;
}

LayerRange stageLayers(int32_t num_layers, const Mapping& mapping, int32_t pp_rank) {
  const int32_t each = num_layers / mapping.pp_size;
  const int32_t extra = num_layers % mapping.pp_size;
  const int32_t begin = pp_rank * each + std::min(pp_rank, extra);
  return {begin, begin + each + (pp_rank < extra ? 1 : 0)};
}

ModelConfig ModelConfig::fromJson(const Json& json, std::string_view source) {
  if (!json.is_object()) fail(ErrorCode::kCorrupt, "{}: expected a JSON object", source);
  ModelConfig config;
  config.architecture = jsonGet<std::string>(json, "architecture", source);
  jsonGet<std::string>(json, "dtype", source);
  config.dtype = floatType(json, "dtype", "", source);
  config.logits_dtype = floatType(json, "logits_dtype", "float32", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.hidden_size = jsonGet<int64_t>(json, "hidden_size", source);
  config.embedding_size = optionalSize(json, "embedding_size", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "num_hidden_layers", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "num_attention_heads", source);
  config.num_key_value_heads = static_cast<int32_t>(optionalSize(json, "num_key_value_heads", source));
  config.head_size = optionalSize(json, "head_size", source);
  config.intermediate_size = optionalSize(json, "intermediate_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "max_position_embeddings", 0, source);
  config.hidden_act = jsonGet<std::string>(json, "hidden_act", source);
  config.norm_epsilon = jsonGetOr(json, "norm_epsilon", config.norm_epsilon, source);
  const auto positions = jsonGetOr<std::string>(json, "position_embedding_type", "learned_absolute", source);
  config.position_embedding_type = positionEmbedding(positions, source);
  config.q_scaling = jsonGetOr(json, "q_scaling", config.q_scaling, source);
  const char* rotary_dim = has(json, "rotary_embedding_dim") ? "rotary_embedding_dim" : "rotary_dim";
  config.rotary_embedding_dim = optionalSize(json, rotary_dim, source);
  config.rotary_base = jsonGetOr(json, "rotary_base", config.rotary_base, source);
  config.rotary_scaling = rotaryScaling(json, positions, config.max_position_embeddings, source);
  config.attn_bias = jsonGetOr(json, "attn_bias", false, source);
  config.mlp_bias = jsonGetOr(json, "mlp_bias", false, source);
  config.qk_layernorm = jsonGetOr(json, "qk_layernorm", false, source);
  config.tie_word_embeddings =
      jsonGetOr(json, "tie_word_embeddings", jsonGetOr(json, "share_embedding_table", false, source), source);
  config.use_parallel_embedding = jsonGetOr(json, "use_parallel_embedding", false, source);
  config.embedding_sharding_dim = jsonGetOr<int32_t>(json, "embedding_sharding_dim", 0, source);
  config.mapping = readMapping(json, source);
  config.quantization = readQuantization(json, source);
  if (has(json, "weight_layout")) config.weight_layout = jsonGet<std::string>(json, "weight_layout", source);
  config.extra = extraKeys(json, config.toJson(), source);

  if (config.rotary_embedding_dim == 0 && has(json, "rotary_pct")) {
    const auto rotary_pct = jsonGet<double>(json, "rotary_pct", source);
    if (!(rotary_pct > 0.0 && rotary_pct <= 1.0)) {
      fail(ErrorCode::kInvalidArgument, "{}: rotary_pct must lie in (0, 1]", source);
    }
    const int64_t heads = std::max(config.num_attention_heads, 1);
    const int64_t head_size = config.head_size > 0 ? config.head_size : config.hidden_size / heads;
    config.rotary_embedding_dim = static_cast<int64_t>(static_cast<double>(head_size) * rotary_pct);
  }
  config.finalize(source);
  return config;
}

void ModelConfig::finalize(std::string_view source) {
  checkSize(source, "vocab_size", vocab_size);
  checkSize(source, "hidden_size", hidden_size);
  if (embedding_size == 0) embedding_size = hidden_size;
  checkSize(source, "embedding_size", embedding_size);
  checkSize(source, "num_hidden_layers", num_hidden_layers, kMaxLayers);
  checkSize(source, "num_attention_heads", num_attention_heads, 1 << 16);
  if (num_key_value_heads == 0) num_key_value_heads = num_attention_heads;
  if (head_size == 0) {
    checkDivides(source, "hidden_size", hidden_size, "num_attention_heads", num_attention_heads);
    head_size = hidden_size / num_attention_heads;
  }
  if (intermediate_size == 0) intermediate_size = 4 * hidden_size;
  if (rotary_embedding_dim == 0) rotary_embedding_dim = head_size;
  checkSize(source, "num_key_value_heads", num_key_value_heads, num_attention_heads);
  checkDivides(source, "num_attention_heads", num_attention_heads, "num_key_value_heads", num_key_value_heads);
  checkSize(source, "head_size", head_size, 1 << 14);
  checkSize(source, "intermediate_size", intermediate_size);
  checkSize(source, "rotary_embedding_dim", rotary_embedding_dim, head_size);
  const bool rotary = position_embedding_type == PositionEmbedding::kRopeGptNeox ||
                      position_embedding_type == PositionEmbedding::kRopeGptj;
  if (rotary) checkDivides(source, "rotary_embedding_dim", rotary_embedding_dim, "rotary pairs of", 2);
  if (max_position_embeddings < 0 || max_position_embeddings > kMaxExtent) {
    fail(ErrorCode::kInvalidArgument, "{}: max_position_embeddings is {}; it must be from 0 to {}", source,
         max_position_embeddings, kMaxExtent);
  }
  if (!(norm_epsilon >= 0.0)) fail(ErrorCode::kInvalidArgument, "{}: norm_epsilon must be at least 0", source);
  if (!(q_scaling > 0.0)) fail(ErrorCode::kInvalidArgument, "{}: q_scaling must be above 0", source);
  if (!(rotary_base > 0.0)) fail(ErrorCode::kInvalidArgument, "{}: rotary_base must be above 0", source);
  checkRopeScaling(rotary_scaling, rotary_embedding_dim, rotary_base, source);

  const int32_t tp = mapping.tp_size;
  checkSize(source, "mapping.tp_size", tp, kMaxRanks);
  checkSize(source, "mapping.pp_size", mapping.pp_size, std::min(num_hidden_layers, kMaxRanks));
  checkSize(source, "mapping.world_size", mapping.worldSize(), kMaxWorldSize);
  checkDivides(source, "num_attention_heads", num_attention_heads, "tp_size", tp);
  if (num_key_value_heads % tp != 0 && tp % num_key_value_heads != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: num_key_value_heads {} and tp_size {}: one must be a multiple of the other",
         source, num_key_value_heads, tp);
  }
  checkDivides(source, "intermediate_size", intermediate_size, "tp_size", tp);
  if (embedding_sharding_dim != 0 && embedding_sharding_dim != 1) {
    fail(ErrorCode::kInvalidArgument, "{}: embedding_sharding_dim must be 0 or 1", source);
  }
  if (use_parallel_embedding && embedding_sharding_dim == 1) {
    const char* field = embedding_size == hidden_size ? "hidden_size" : "embedding_size";
    checkDivides(source, field, embedding_size, "tp_size", tp);
  }
}

Json ModelConfig::toJson() const {
  Json json = extra;
  json["architecture"] = architecture;
  json["dtype"] = dtypeName(dtype);
  json["logits_dtype"] = dtypeName(logits_dtype);
  json["vocab_size"] = vocab_size;
  json["hidden_size"] = hidden_size;
  json["num_hidden_layers"] = num_hidden_layers;
  json["num_attention_heads"] = num_attention_heads;
  json["num_key_value_heads"] = num_key_value_heads;
  json["head_size"] = head_size;
  json["intermediate_size"] = intermediate_size;
  json["max_position_embeddings"] = max_position_embeddings == 0 ? Json(nullptr) : Json(max_position_embeddings);
  json["hidden_act"] = hidden_act;
  json["norm_epsilon"] = norm_epsilon;
  json["q_scaling"] = q_scaling;
  for (const auto& [name, value] : kPositionEmbeddings) {
    if (value == position_embedding_type) json["position_embedding_type"] = name;
  }
  json["rotary_embedding_dim"] = rotary_embedding_dim;
  json["rotary_base"] = rotary_base;
  json["rotary_scaling"] = ropeScalingJson(rotary_scaling);
  json["attn_bias"] = attn_bias;
  json["mlp_bias"] = mlp_bias;
  json["qk_layernorm"] = qk_layernorm;
  json["tie_word_embeddings"] = tie_word_embeddings;
  json["use_parallel_embedding"] = use_parallel_embedding;
  json["embedding_sharding_dim"] = embedding_sharding_dim;
  json["mapping"] = {{"world_size", mapping.worldSize()}, {"tp_size", mapping.tp_size}, {"pp_size", mapping.pp_size}};
  json["quantization"] = {{"quant_algo", orNull(quantization.quant_algo)},
                          {"kv_cache_quant_algo", orNull(quantization.kv_cache_quant_algo)},
                          {"group_size", quantization.group_size},
                          {"smoothquant_val", quantization.smoothquant_val},
                          {"clamp_val", orNull(quantization.clamp_val)},
                          {"use_meta_recipe", quantization.use_meta_recipe},
                          {"has_zero_point", quantization.has_zero_point},
                          {"pre_quant_scale", quantization.pre_quant_scale},
                          {"exclude_modules", orNull(quantization.exclude_modules)}};
  if (embedding_size != hidden_size) json["embedding_size"] = embedding_size;
  if (weight_layout) json["weight_layout"] = *weight_layout;
  return json;
}

}  // namespace chorus
