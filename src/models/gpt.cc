#include "models/gpt.h"

#include <optional>
#include <utility>
#include <vector>

#include "lora/module_ids.h"
#include "models/decoder_rows.h"
#include "models/gpt2.h"

namespace chorus {
namespace {

// hidden_act of gated MLPs -> the activation.
constexpr std::pair<const char*, const char*> kGated[] = {
    {kSwiglu, "silu"},       {kGeglu, "gelu_new"},       {kGegluErf, "gelu"},   {kReglu, "relu"},
    {"fast-swiglu", "silu"}, {"fast-geglu", "gelu_new"}, {"fast-reglu", "relu"}};

// The activation of a gated MLP; nullopt if the MLP is plain.
std::optional<std::string> gatedBy(const ModelConfig& config) {
  for (const auto& [name, activation] : kGated) {
    if (config.hidden_act == name) return activation;
  }
  return std::nullopt;
}
bool hasBias(const ModelConfig& config) { return jsonGetOr(config.extra, kGptBias, true, "config.json"); }
bool hasRmsNorms(const ModelConfig& config) {
  return jsonGetOr<int32_t>(config.extra, kGptNormType, 0, "config.json") == 1;
}
bool hasLearnedPositions(const ModelConfig& config) {
  return config.position_embedding_type == PositionEmbedding::kLearnedAbsolute;
}

bool isGpt2(const ModelConfig& config) {
  return hasLearnedPositions(config) && hasBias(config) && !hasRmsNorms(config) && !gatedBy(config) &&
         config.num_key_value_heads == config.num_attention_heads &&
         jsonGetOr<std::string>(config.extra, kGptVariant, "", "config.json") != "nemo";
}

WeightTable gptTable(const ModelConfig& c) {
  if (isGpt2(c)) return gpt2Architecture().weightTable(c);
  const int64_t h = c.hidden_size, f = c.intermediate_size;
  const bool bias = hasBias(c);
  const std::string layer = "model.layers.{layer}.";
  DecoderRows rows(c);
  const auto norm = [&](NormId id, const std::string& name, const std::string& source) {
    hasRmsNorms(c) ? rows.norm(id, name, source) : rows.layerNorm(id, name, source);
  };
  rows.embedding("model.embed_tokens.weight");
  if (hasLearnedPositions(c))
    rows.positions({.name = "model.embed_positions.weight", .rows = c.max_position_embeddings});
  norm(NormId::kAttentionIn, "input_layernorm", layer + "input_layernorm");
  const std::string modules[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::vector<LoraTarget> targets = {{kAttnQkv, "self_attn.qkv_proj", 0, QkvRows(c).all}};
  for (LoraTarget& target : separateQkvTargets(c, modules)) targets.push_back(std::move(target));
  rows.qkv(separateQkvSources(c, layer, modules), std::move(targets), bias);
  rows.dense({layer + "self_attn.o_proj.weight", 0, h}, "self_attn.o_proj", bias);
  norm(NormId::kMlpIn, "post_layernorm", layer + "post_attention_layernorm");
  if (gatedBy(c)) {
    const std::string fused = "mlp.gate_up_proj";
    const auto half = [&](int32_t id, const std::string& module, int64_t begin) -> DecoderRows::Half {
      return {{{layer + module + ".weight", 0, f}},
              {{id, module, 0, f}, {id, fused, 0, f, {.total = 2 * f, .begin = begin}}}};
    };
    rows.gatedFc(half(kMlpHTo4H, "mlp.gate_proj", 0), half(kMlpGate, "mlp.up_proj", f), bias);
    rows.proj({layer + "mlp.down_proj.weight", 0, h}, "mlp.down_proj", bias);
  } else {
    rows.fc({layer + "mlp.dense_h_to_4h.weight", 0, f}, "mlp.dense_h_to_4h", bias);
    rows.proj({layer + "mlp.dense_4h_to_h.weight", 0, h}, "mlp.dense_4h_to_h", bias);
  }
  norm(NormId::kFinal, "ln_f", "model.norm");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec gptSpec(const ModelConfig& config) {
  const std::optional<std::string> gated = gatedBy(config);
  ModelConfig named = config;
  if (gated) named.hidden_act = *gated;
  LayerSpec layer = layerSpec(named);
  layer.mlp.kind = gated ? MlpKind::kGated : MlpKind::kPlain;
  ModelSpec spec = modelSpec(named, layer);
  if (!hasRmsNorms(config)) {
    spec.norm.kind = NormKind::kLayerNorm;
    spec.norm.bias = true;
  }
  spec.embedding.positions = hasLearnedPositions(config);
  return spec;
}

std::vector<Json> hiddenActs() {
  std::vector<Json> names = activationNames();
  for (const auto& gated : kGated) names.emplace_back(gated.first);
  return names;
}
}  // namespace

Architecture gptArchitecture() {
  const Architecture gpt2 = gpt2Architecture();
  return {.name = "GPTForCausalLM",
          .configFromHuggingFace = gpt2.configFromHuggingFace,
          .weightTable = gptTable,
          .modelSpec = gptSpec,
          .ignored_sources = gpt2.ignored_sources,
          .fields = {{"position_embedding_type", {"learned_absolute", "rope_gpt_neox", "rope_gptj"}},
                     {"hidden_act", hiddenActs()},
                     {"attn_bias", {true}},
                     {"mlp_bias", {true}},
                     {kGptBias, {true}},
                     {kGptNormType, {0, 1}},
                     {kGptVariant, {"nemo"}},  // other values make no difference
                     // The factor is applied and undone again within each layer; the results do not change.
                     {"apply_query_key_layer_scaling", {true}}},
          .models = {"NeMo's Megatron GPT"},
          .structure = "layer norms or RMS norms, MLP with or without a gate, biases, learned or rotary positions"};
}

}  // namespace chorus
