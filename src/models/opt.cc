#include "models/opt.h"

#include "lora/module_ids.h"
#include "models/decoder_rows.h"
#include "models/source_config.h"

namespace chorus {
namespace {

// A field of a checkpoint, and a key of the source. Without it, a checkpoint's norms are after the sums; a source's are
// before the blocks.
constexpr const char* kNormsBefore = "do_layer_norm_before";

bool hasNormsBefore(const ModelConfig& config) { return jsonGetOr(config.extra, kNormsBefore, false, "config.json"); }

// 350m projects between its embedding and the hidden size. TensorRT-LLM's checkpoints of it have the products instead:
// an embedding and an output head of the hidden size.
bool hasProjections(const ModelConfig& config) { return config.embedding_size != config.hidden_size; }

ModelConfig optConfig(const Json& json, std::string_view source) {
  checkSourceKeys(
      json,
      {.used = {"hidden_size", "word_embed_proj_dim", "ffn_dim", "num_hidden_layers", "num_attention_heads",
                "vocab_size", "max_position_embeddings", "activation_function", "tie_word_embeddings", kNormsBefore},
       .inert = {"dropout", "activation_dropout", "layerdrop", "init_std", "output_projection"},
       .only_at_default = {{"enable_bias", true},
                           {"layer_norm_elementwise_affine", true},
                           {"_remove_final_layer_norm", false}}},
      source);
  ModelConfig config;
  config.architecture = "OPTForCausalLM";
  config.hidden_size = jsonGet<int64_t>(json, "hidden_size", source);
  config.embedding_size = optionalSize(json, "word_embed_proj_dim", source);
  config.intermediate_size = jsonGet<int64_t>(json, "ffn_dim", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "num_hidden_layers", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "num_attention_heads", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "max_position_embeddings", 2048, source);
  config.hidden_act = jsonGetOr<std::string>(json, "activation_function", "relu", source);
  config.norm_epsilon = 1e-5;
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", true, source);
  config.position_embedding_type = PositionEmbedding::kLearnedAbsolute;
  config.attn_bias = config.mlp_bias = true;
  config.extra[kNormsBefore] = jsonGetOr(json, kNormsBefore, true, source);
  config.finalize(source);
  return config;
}

WeightTable optTable(const ModelConfig& c) {
  // The source has two rows of positions before that of position 0.
  constexpr int64_t kUnusedPositions = 2;
  const int64_t positions = c.max_position_embeddings;
  const std::string decoder = "model.decoder.", layer = decoder + "layers.{layer}.";
  const std::string attention_norm = layer + "self_attn_layer_norm", mlp_norm = layer + "final_layer_norm";
  const std::string qkv[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  const bool before = hasNormsBefore(c);
  DecoderRows rows(c);
  rows.embedding(decoder + "embed_tokens.weight");
  if (hasProjections(c)) rows.projectIn(decoder + "project_in.weight");
  rows.positions({.name = decoder + "embed_positions.weight",
                  .rows = positions,
                  .in_source = {.total = positions + kUnusedPositions, .begin = kUnusedPositions}});
  rows.layerNorm(before ? NormId::kAttentionIn : NormId::kAttentionOut, "input_layernorm", attention_norm);
  rows.qkv(separateQkvSources(c, layer, qkv), separateQkvTargets(c, qkv), true);
  rows.dense({layer + "self_attn.out_proj.weight", 0, c.hidden_size}, "self_attn.out_proj", true);
  rows.layerNorm(before ? NormId::kMlpIn : NormId::kMlpOut, "post_layernorm", mlp_norm);
  rows.fc({layer + "fc1.weight", 0, c.intermediate_size}, "fc1", true);
  rows.proj({layer + "fc2.weight", 0, c.hidden_size}, "fc2", true);
  if (before) rows.layerNorm(NormId::kFinal, "ln_f", decoder + "final_layer_norm");
  if (hasProjections(c)) rows.projectOut(decoder + "project_out.weight");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec optSpec(const ModelConfig& config) {
  const bool before = hasNormsBefore(config);
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  layer.residual = before ? ResidualForm::kPre : ResidualForm::kNormedSum;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  spec.embedding.positions = true;
  spec.head.norm = before;
  return spec;
}
}  // namespace

Architecture optArchitecture() {
  return {
      .name = "OPTForCausalLM",
      .configFromHuggingFace = optConfig,
      .weightTable = optTable,
      .modelSpec = optSpec,
      // Files have the output head of a tied model too.
      .ignored_sources = {"lm_head.weight"},
      .fields = {{"position_embedding_type", {"learned_absolute"}},
                 {"hidden_act", activationNames()},
                 {"attn_bias", {true}},
                 {"mlp_bias", {true}},
                 {"bias", {true}},
                 {"embedding_size"},
                 {kNormsBefore, {true}}},
      .models = {"OPT"},
      .structure = "layer norms before the blocks or after the sums, biases, embeddings narrower than the hidden size"};
}

}  // namespace chorus
