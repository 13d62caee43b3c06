#include "models/gpt2.h"

#include "lora/module_ids.h"
#include "models/gpt2_blocks.h"

namespace chorus {
namespace {

ModelConfig gpt2Config(const Json& json, std::string_view source) {
  SourceKeys keys = gpt2Keys();
  keys.inert.emplace_back("reorder_and_upcast_attn");
  keys.only_at_default.emplace_back("scale_attn_by_inverse_layer_idx", false);
  checkSourceKeys(json, keys, source);
  ModelConfig config = readGpt2Config(json, source);
  config.architecture = "GPT2LMHeadModel";
  config.position_embedding_type = PositionEmbedding::kLearnedAbsolute;
  config.attn_bias = config.mlp_bias = true;
  config.finalize(source);
  return config;
}

WeightTable transposedGpt2Table(const ModelConfig& c) {
  const auto qkv = [&](DecoderRows& rows) {
    const int64_t all = QkvRows(c).all;
    rows.qkv({{.name = "transformer.h.{layer}.attn.c_attn.weight", .rows = all, .transform = {.transposed = true}}},
             {{kAttnQkv, "attn.c_attn", 0, all}}, true);
  };
  return gpt2Table(c, {.transposed = true, .qkv = qkv});
}
}  // namespace

Architecture gpt2Architecture() {
  return {.name = "GPT2LMHeadModel",
          .configFromHuggingFace = gpt2Config,
          .weightTable = transposedGpt2Table,
          .modelSpec = gpt2Spec,
          .ignored_sources = gpt2IgnoredSources(),
          .fields = gpt2Fields(),
          .models = {"GPT-2"},
          .structure = "layer norms, biases, MLP without a gate"};
}

}  // namespace chorus
