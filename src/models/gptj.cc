#include "models/gptj.h"

#include "base/error.h"
#include "models/decoder_rows.h"
#include "models/gpt2_blocks.h"

namespace chorus {
namespace {

constexpr int64_t kGptjRotaryDim = 64;  // transformers' value for a config without rotary_dim

ModelConfig gptjConfig(const Json& json, std::string_view source) {
  SourceKeys keys = gpt2Keys();
  keys.used.emplace_back("rotary_dim");
  keys.inert.emplace_back("gradient_checkpointing");
  keys.only_at_default.emplace_back("rotary", true);
  checkSourceKeys(json, keys, source);
  ModelConfig config =
      readGpt2Config(withDefaults(json, {{"n_positions", 2048}, {"tie_word_embeddings", false}}), source);
  config.architecture = "GPTJForCausalLM";
  config.position_embedding_type = PositionEmbedding::kRopeGptj;
  if (json.contains("rotary_dim") && json["rotary_dim"].is_null()) {
    // transformers then makes a table for the hidden size, which fits the heads only if there is a single one.
    fail(ErrorCode::kUnsupported, "{}: 'rotary_dim' must be a number, not null", source);
  }
  config.rotary_embedding_dim = json.contains("rotary_dim") ? optionalSize(json, "rotary_dim", source) : kGptjRotaryDim;
  config.mlp_bias = true;
  config.finalize(source);
  return config;
}

WeightTable gptjTable(const ModelConfig& c) {
  const int64_t h = c.hidden_size, f = c.intermediate_size;
  const std::string layer = "transformer.h.{layer}.";
  const std::string attention[] = {"attn.q_proj", "attn.k_proj", "attn.v_proj"};
  DecoderRows rows(c);
  rows.embedding("transformer.wte.weight");
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + "ln_1");
  rows.qkv(separateQkvSources(c, layer, attention), separateQkvTargets(c, attention), false);
  rows.dense({layer + "attn.out_proj.weight", 0, h}, "attn.out_proj", false);
  rows.fc({layer + "mlp.fc_in.weight", 0, f}, "mlp.fc_in", true);
  rows.proj({layer + "mlp.fc_out.weight", 0, h}, "mlp.fc_out", true);
  rows.layerNorm(NormId::kFinal, "ln_f", "transformer.ln_f");
  rows.head("lm_head.weight", true);
  return rows.take();
}

ModelSpec gptjSpec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  layer.residual = ResidualForm::kParallelShared;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  spec.head.bias = true;
  return spec;
}
}  // namespace

Architecture gptjArchitecture() {
  return {
      .name = "GPTJForCausalLM",
      .configFromHuggingFace = gptjConfig,
      .weightTable = gptjTable,
      .modelSpec = gptjSpec,
      .ignored_sources = gpt2IgnoredSources(),
      .fields = {{"position_embedding_type", {"rope_gptj"}}, {"hidden_act", activationNames()}, {"mlp_bias", {true}}},
      .models = {"GPT-J"},
      .structure =
          "parallel blocks with one norm, layer norms, partial RoPE, an MLP without a gate, a bias of the output head"};
}

}  // namespace chorus
