#include "models/experts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "lora/module_ids.h"
#include "models/weight_rows.h"

namespace chorus {
namespace {

constexpr std::string_view kExpertsSource = "config.json";
constexpr int32_t kMaxExperts = 1 << 14;
constexpr int64_t kMaxExpertsOfAllLayers = 1 << 20;
constexpr const char* kMoe = "moe";
constexpr const char* kSize = "moe_intermediate_size";
constexpr const char* kSharedSize = "moe_shared_expert_intermediate_size";
constexpr const char* kSourceSharedSize = "shared_expert_intermediate_size";
constexpr const char* kStep = "decoder_sparse_step";
constexpr const char* kDenseLayers = "mlp_only_layers";
constexpr const char* kGatedSilu = "swiglu";  // TensorRT-LLM's name of a gated MLP with silu
// Values of normalization_mode.
constexpr int32_t kNone = 0, kRenormalize = 1;

// The layers with experts.
std::vector<bool> layersWithExperts(const Json& json, int32_t num_layers, std::string_view source) {
  const auto step = jsonGetOr<int64_t>(json, kStep, 1, source);
  if (step < 1) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be at least 1, not {}", source, kStep, step);
  std::vector<bool> layers;
  for (int32_t layer = 0; layer < num_layers; ++layer) layers.push_back((layer + 1) % step == 0);
  const auto dense = json.find(kDenseLayers);
  if (dense == json.end() || dense->is_null()) return layers;
  if (!dense->is_array()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list", source, kDenseLayers);
  for (const Json& layer : *dense) {
    if (!layer.is_number_integer()) {
      fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list of layers' numbers", source, kDenseLayers);
    }
    if (layer >= 0 && layer < num_layers) layers[layer.get<size_t>()] = false;
  }
  return layers;
}

void checkCounts(const ExpertsConfig& experts, std::string_view source) {
  if (experts.experts < 1 || experts.experts > kMaxExperts || experts.top_k < 1 || experts.top_k > experts.experts) {
    fail(ErrorCode::kInvalidArgument,
         "{}: {} experts, of which a token takes {}: there must be from 1 to {} experts, and a token must take at "
         "least 1 and at most all",
         source, experts.experts, experts.top_k, kMaxExperts);
  }
  const auto layers = std::ranges::count(experts.layers, true);
  if (layers * experts.experts > kMaxExpertsOfAllLayers) {
    fail(ErrorCode::kInvalidArgument, "{}: {} layers of {} experts: there must be at most {} experts in all layers",
         source, layers, experts.experts, kMaxExpertsOfAllLayers);
  }
}

// A size from 0 to 2^31 - 1; `otherwise` without the field.
int64_t sizeField(const Json& json, const char* field, int64_t otherwise, std::string_view source) {
  const auto size = jsonGetOr<int64_t>(json, field, otherwise, source);
  if (size < 0 || size > INT32_MAX) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be from 0 to {}, not {}", source, field, INT32_MAX, size);
  }
  return size;
}

// Refuses members of the moe object that could change the numbers.
void checkMembers(const Json& moe) {
  for (const auto& [key, value] : moe.items()) {
    const bool is_inert = key == "sparse_mixer_epsilon" || key == "tp_mode" || value.is_null();
    if (is_inert || key == "num_experts" || key == "top_k" || key == "normalization_mode") continue;
    fail(ErrorCode::kUnsupported, "{}: moe: key '{}' is not supported", kExpertsSource, key);
  }
}

std::vector<int32_t> idsOf(const std::vector<bool>& layers, bool value) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] == value) ids.push_back(static_cast<int32_t>(i));
  }
  return ids;
}

std::string inCheckpoint(const std::string& name) { return "transformer.layers.{layer}.mlp." + name + ".weight"; }
std::string inSource(const std::string& name) { return "model.layers.{layer}." + name; }

// Sources and targets of the two halves of a gated input projection, [other; activated], of which each has f rows.
struct Halves {
  int64_t f = 0;
  std::vector<WeightSource> sources = {};
  std::vector<LoraTarget> targets = {};

  // Adds the two halves as separate linears. ids: the modules of the other half and of the activated one.
  void addSeparate(const std::string& other, const std::string& activated, std::pair<int32_t, int32_t> ids,
                   int32_t spelling) {
    sources.push_back({.name = inSource(other) + ".weight", .row_begin = 0, .rows = f, .spelling = spelling});
    sources.push_back({.name = inSource(activated) + ".weight", .row_begin = f, .rows = f, .spelling = spelling});
    targets.push_back({ids.first, other, 0, f});
    targets.push_back({ids.second, activated, f, f});
  }
  // Adds a tensor of both halves, for all experts or for each, that has the rows of the activated half first.
  void addFused(const std::string& tensor, const std::string& module, std::pair<int32_t, int32_t> ids,
                int32_t spelling) {
    const SourceRows activated = {.total = 2 * f, .begin = 0}, other = {.total = 2 * f, .begin = f};
    sources.push_back({inSource(tensor), 0, f, other, {}, SourceFormat::kHuggingFace, spelling});
    sources.push_back({inSource(tensor), f, f, activated, {}, SourceFormat::kHuggingFace, spelling});
    targets.push_back({ids.first, module, 0, f, other});
    targets.push_back({ids.second, module, f, f, activated});
  }
};

Halves expertHalves(const ExpertsForm& form, int64_t f) {
  Halves halves = {f};
  int32_t spelling = 0;
  for (const std::string& block : form.blocks) {
    const std::string each = block + ".experts.{expert}.";
    if (form.has_separate) {
      halves.addSeparate(each + form.other, each + form.activated, {kMoeGate, kMoeHTo4H}, spelling++);
    }
    for (const ExpertsForm::Stacked& stacked : form.stacked) {
      const std::string input = block + "." + stacked.input;
      halves.addFused(input, input, {kMoeGate, kMoeHTo4H}, spelling++);
    }
  }
  return halves;
}

WeightRow expertsOutput(const ExpertsForm& form, int64_t hidden, int64_t f) {
  std::vector<WeightSource> sources;
  std::vector<LoraTarget> targets;
  const auto add = [&](const std::string& tensor, const std::string& module) {
    const auto spelling = static_cast<int32_t>(sources.size());
    sources.push_back({.name = inSource(tensor), .rows = hidden, .spelling = spelling});
    targets.push_back({kMoe4HToH, module, 0, hidden});
  };
  for (const std::string& block : form.blocks) {
    const std::string each = block + ".experts.{expert}." + form.output;
    if (form.has_separate) add(each + ".weight", each);
    for (const ExpertsForm::Stacked& stacked : form.stacked) {
      add(block + "." + stacked.output, block + "." + stacked.output);
    }
  }
  return linearRow(slotOf(LinearId::kExpertsProj), inCheckpoint("proj"), hidden, f, {.axis = ShardRule::Axis::kColumns},
                   std::move(sources), std::move(targets));
}

WeightRow routerRow(const ExpertsForm& form, int64_t experts, int64_t hidden) {
  std::vector<WeightSource> sources;
  std::vector<LoraTarget> targets;
  for (const std::string& block : form.blocks) {
    for (const std::string& router : form.routers) {
      const auto spelling = static_cast<int32_t>(sources.size());
      const std::string module = block + "." + router;
      sources.push_back({.name = inSource(module) + ".weight", .rows = experts, .spelling = spelling});
      targets.push_back({kMoeRouter, module, 0, experts});
    }
  }
  WeightRow row = linearRow(slotOf(LinearId::kRouter), inCheckpoint("router"), experts, hidden, {}, std::move(sources),
                            std::move(targets));
  row.quantisable = false;
  row.dtype = DType::kFloat32;
  return row;
}

void addSharedRows(const ExpertsForm::Shared& form, int64_t hidden, int64_t f, WeightTable& table) {
  Halves halves = {f};
  const std::pair<int32_t, int32_t> ids = {kSharedExpertGate, kSharedExpertHTo4H};
  if (form.input.empty()) {
    halves.addSeparate(form.other, form.activated, ids, 0);
  } else {
    halves.addFused(form.input + ".weight", form.input, ids, 0);
  }
  table.push_back(linearRow(slotOf(LinearId::kSharedFc), inCheckpoint("shared_expert.fc"), 2 * f, hidden,
                            {.axis = ShardRule::Axis::kRows, .parts = {f, f}}, std::move(halves.sources),
                            std::move(halves.targets)));
  table.push_back(linearRow(slotOf(LinearId::kSharedProj), inCheckpoint("shared_expert.proj"), hidden, f,
                            {.axis = ShardRule::Axis::kColumns}, {{inSource(form.output + ".weight"), 0, hidden}},
                            {{kSharedExpert4HToH, form.output, 0, hidden}}));
  if (form.gate.empty()) return;
  table.push_back(linearRow(slotOf(LinearId::kSharedGate), inCheckpoint("shared_expert_gate"), 1, hidden, {},
                            {{inSource(form.gate + ".weight"), 0, 1}}, {{kMlpRouter, form.gate, 0, 1}}));
  table.back().quantisable = false;
}
}  // namespace

ExpertsConfig expertsConfig(const ModelConfig& config) {
  const Json& fields = config.extra;
  const auto object = fields.find(kMoe);
  const bool has_object = object != fields.end() && object->is_object();
  if (has_object) checkMembers(*object);
  const auto field = [&](const char* member, const char* flat, int32_t otherwise) {
    if (has_object && object->contains(member)) return jsonGetOr(*object, member, otherwise, "config.json: moe");
    return jsonGetOr(fields, flat, otherwise, kExpertsSource);
  };
  ExpertsConfig experts;
  experts.experts = field("num_experts", "moe_num_experts", 0);
  experts.top_k = field("top_k", "moe_top_k", 0);
  const int32_t mode = field("normalization_mode", "moe_normalization_mode", kRenormalize);
  experts.layers = layersWithExperts(fields, config.num_hidden_layers, kExpertsSource);
  checkCounts(experts, fmt::format("{}: moe", kExpertsSource));
  if (mode != kNone && mode != kRenormalize) {
    fail(ErrorCode::kUnsupported, "{}: moe.normalization_mode {} is not supported; 0 (NONE) and 1 (RENORMALIZE) are",
         kExpertsSource, mode);
  }
  experts.normalised = mode == kRenormalize;
  experts.size = sizeField(fields, kSize, 0, kExpertsSource);
  if (experts.size == 0) experts.size = config.intermediate_size;
  experts.shared_size = sizeField(fields, kSharedSize, 0, kExpertsSource);
  return experts;
}

void addExpertsFields(std::vector<FieldValues>& fields) {
  std::erase_if(fields, [](const FieldValues& entry) { return entry.field == "hidden_act"; });
  fields.push_back({"hidden_act", {kGatedSilu, "silu"}});
  for (const char* field : {"moe.num_experts", "moe_num_experts", kSize, kSharedSize, kStep}) {
    fields.push_back({.field = field, .range = FieldRange::kSize});
  }
  fields.push_back({.field = kDenseLayers, .range = FieldRange::kList});
}

void setExperts(const ExpertsConfig& experts, std::string_view source, ModelConfig& config) {
  checkCounts(experts, source);
  if (config.hidden_act != "silu") {
    fail(ErrorCode::kUnsupported, "{}: hidden_act '{}' is not supported in a mixture of experts; silu is", source,
         config.hidden_act);
  }
  config.hidden_act = kGatedSilu;
  config.extra[kMoe] = {{"num_experts", experts.experts},
                        {"top_k", experts.top_k},
                        {"normalization_mode", experts.normalised ? kRenormalize : kNone}};
  if (experts.size != config.intermediate_size) config.extra[kSize] = experts.size;
  if (experts.shared_size > 0) config.extra[kSharedSize] = experts.shared_size;
  if (const auto dense = idsOf(experts.layers, false); !dense.empty()) config.extra[kDenseLayers] = dense;
}

void readQwenExperts(const Json& json, std::string_view source, bool shared, ModelConfig& config) {
  // transformers 5 writes Qwen3-MoE's number under Mixtral's key.
  const char* count = json.contains("num_experts") ? "num_experts" : "num_local_experts";
  const ExpertsConfig experts = {.experts = jsonGet<int32_t>(json, count, source),
                                 .top_k = jsonGet<int32_t>(json, "num_experts_per_tok", source),
                                 .normalised = jsonGetOr(json, "norm_topk_prob", false, source),
                                 .size = jsonGet<int64_t>(json, kSize, source),
                                 .shared_size = shared ? jsonGet<int64_t>(json, kSourceSharedSize, source) : 0,
                                 .layers = layersWithExperts(json, config.num_hidden_layers, source)};
  for (const auto& [key, size] : {std::pair(kSize, experts.size), {kSourceSharedSize, experts.shared_size}}) {
    const bool is_needed = key == kSize || shared;
    if (is_needed && (size < 1 || size > INT32_MAX)) {
      fail(ErrorCode::kInvalidArgument, "{}: '{}' must be from 1 to {}, not {}", source, key, INT32_MAX, size);
    }
  }
  setExperts(experts, source, config);
}

void addQwenExpertsKeys(bool shared, SourceKeys& keys) {
  keys.used.insert(keys.used.end(), {"num_experts", "num_local_experts", "num_experts_per_tok", "norm_topk_prob", kSize,
                                     kStep, kDenseLayers});
  if (shared) keys.used.push_back(kSourceSharedSize);
  keys.inert.insert(keys.inert.end(), {"output_router_logits", "router_aux_loss_coef"});
}

WeightTable expertsRows(const ModelConfig& config, const ExpertsForm& form) {
  const ExpertsConfig experts = expertsConfig(config);
  const std::vector<int32_t> layers = idsOf(experts.layers, true);
  const int64_t h = config.hidden_size, f = experts.size;
  WeightTable table;
  if (layers.empty()) return table;
  table.push_back(routerRow(form, experts.experts, h));
  Halves halves = expertHalves(form, f);
  table.push_back(linearRow(slotOf(LinearId::kExpertsFc), inCheckpoint("fc"), 2 * f, h,
                            {.axis = ShardRule::Axis::kRows, .parts = {f, f}}, std::move(halves.sources),
                            std::move(halves.targets)));
  table.back().experts = experts.experts;
  table.push_back(expertsOutput(form, h, f));
  table.back().experts = experts.experts;
  if (experts.shared_size > 0) addSharedRows(form.shared, h, experts.shared_size, table);
  for (WeightRow& row : table) row.layers = layers;
  return table;
}

std::vector<int32_t> denseLayers(const ModelConfig& config) { return idsOf(expertsConfig(config).layers, false); }

LayerSpec denseLayerSpec(const ModelConfig& config) {
  ModelConfig dense = config;
  dense.hidden_act = "silu";
  return layerSpec(dense);
}

void addExperts(const ModelConfig& config, ModelSpec& spec, bool shared_gate) {
  const ExpertsConfig experts = expertsConfig(config);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!experts.layers[i]) continue;
    spec.layers[i].mlp = {.kind = MlpKind::kExperts,
                          .activation = Activation::kSilu,
                          .intermediate_size = experts.size,
                          .experts = experts.experts,
                          .top_k = experts.top_k,
                          .normalised = experts.normalised,
                          .shared_size = experts.shared_size,
                          .shared_gate = shared_gate && experts.shared_size > 0};
  }
}

}  // namespace chorus
