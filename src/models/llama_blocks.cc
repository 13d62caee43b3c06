#include "models/llama_blocks.h"

#include "lora/module_ids.h"
#include "models/decoder_rows.h"
#include "models/experts.h"

namespace chorus {
namespace {

// The name of a tensor or module of every layer in the source.
std::string sourceInLayer(const std::string& name) { return "model.layers.{layer}." + name; }

void addAttention(const ModelConfig& c, const LlamaForm& form, DecoderRows& rows) {
  const QkvRows qkv(c);
  const std::string modules[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::vector<LoraTarget> targets = {{kAttnQkv, "self_attn.qkv_proj", 0, qkv.all}};
  for (LoraTarget& target : separateQkvTargets(c, modules, form.torchtune_rows)) targets.push_back(std::move(target));
  rows.qkv(form.fused_sources ? std::vector<WeightSource>{{sourceInLayer("self_attn.qkv_proj.weight"), 0, qkv.all}}
                              : separateQkvSources(c, sourceInLayer(""), modules),
           std::move(targets), form.qkv_bias);
  if (form.qk_norm != QkNorm::kNone) {
    rows.qkNorms(form.qk_norm, sourceInLayer("self_attn.q_norm.weight"), sourceInLayer("self_attn.k_norm.weight"));
  }
  rows.dense({sourceInLayer("self_attn.o_proj.weight"), 0, c.hidden_size}, "self_attn.o_proj", form.dense_bias);
}

void addMlp(const ModelConfig& c, const LlamaForm& form, DecoderRows& rows) {
  const int64_t f = c.intermediate_size;
  // A tensor or adapter of both halves has the rows of gate_proj first.
  const std::string fused = "mlp.gate_up_proj";
  const SourceRows first = {.total = 2 * f, .begin = 0};
  const SourceRows second = {.total = 2 * f, .begin = f};
  const auto half = [&](int32_t id, const std::string& module, const SourceRows& in_fused) -> DecoderRows::Half {
    const WeightSource source = form.fused_sources ? WeightSource{sourceInLayer(fused + ".weight"), 0, f, in_fused}
                                                   : WeightSource{sourceInLayer(module + ".weight"), 0, f};
    return {{source}, {{id, module, 0, f}, {id, fused, 0, f, in_fused}}};
  };
  rows.gatedFc(half(kMlpHTo4H, "mlp.gate_proj", first), half(kMlpGate, "mlp.up_proj", second), form.mlp_bias);
  rows.proj({sourceInLayer("mlp.down_proj.weight"), 0, c.hidden_size}, "mlp.down_proj", form.mlp_bias);
}

// The MLPs of a model in which some or all layers have experts.
void addExperts(const ModelConfig& c, const LlamaForm& form, DecoderRows& rows) {
  const std::vector<int32_t> layers = denseLayers(c);
  if (!layers.empty()) {
    DecoderRows mlp(c);
    addMlp(c, form, mlp);
    WeightTable dense = mlp.take();
    for (WeightRow& row : dense) row.layers = layers;
    rows.append(dense);
  }
  rows.append(expertsRows(c, *form.experts));
}
}  // namespace

SourceKeys llamaKeys() {
  return {.used = decoderKeys(), .inert = {}, .only_at_default = {{"partial_rotary_factor", 1.0}}};
}

ModelConfig readLlamaConfig(const Json& json, std::string_view source) {
  ModelConfig config = readDecoderConfig(json, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(json, source, PartialRotary::kRefused, config);
  return config;
}

WeightTable llamaTable(const ModelConfig& c, const LlamaForm& form) {
  DecoderRows rows(c, form.norms);
  const auto layerNorm = [&](NormId id, const std::string& name, const std::string& source) {
    rows.norm(id, name, sourceInLayer(source));
  };
  const bool before = form.residual != ResidualForm::kPost, shared = form.residual == ResidualForm::kParallelShared;
  const bool after = form.residual != ResidualForm::kPre && !shared;
  rows.embedding("model.embed_tokens.weight");
  if (before) layerNorm(NormId::kAttentionIn, "input_layernorm", "input_layernorm");
  addAttention(c, form, rows);
  if (!shared) {
    layerNorm(after ? NormId::kAttentionOut : NormId::kMlpIn, "post_layernorm", "post_attention_layernorm");
  }
  if (before && after) layerNorm(NormId::kMlpIn, "pre_feedforward_layernorm", "pre_feedforward_layernorm");
  form.experts == nullptr ? addMlp(c, form, rows) : addExperts(c, form, rows);
  if (after) layerNorm(NormId::kMlpOut, "post_feedforward_layernorm", "post_feedforward_layernorm");
  rows.norm(NormId::kFinal, "ln_f", "model.norm");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec llamaSpec(const ModelConfig& config) { return modelSpec(config, layerSpec(config)); }

std::vector<std::string> llamaIgnoredSources() { return {"*.rotary_emb.inv_freq", "lm_head.weight"}; }

std::vector<FieldValues> llamaFields() {
  return {{"position_embedding_type", {"rope_gpt_neox", "rope_gptj"}}, {"hidden_act", activationNames()}};
}

}  // namespace chorus
