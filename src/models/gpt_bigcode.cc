#include "models/gpt_bigcode.h"

#include "lora/module_ids.h"
#include "models/gpt2_blocks.h"

namespace chorus {
namespace {

ModelConfig gptBigCodeConfig(const Json& json, std::string_view source) {
  SourceKeys keys = gpt2Keys();
  keys.used.emplace_back("multi_query");
  keys.inert.insert(
      keys.inert.end(),
      {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "num_key_value_heads", "inference_runner",
       "validate_runner_input", "pre_allocate_kv_cache", "pad_key_length", "max_batch_size", "max_sequence_length"});
  checkSourceKeys(json, keys, source);
  ModelConfig config = readGpt2Config(withDefaults(json, {{"activation_function", "gelu_pytorch_tanh"}}), source);
  config.architecture = "GPTBigCodeForCausalLM";
  config.num_key_value_heads = jsonGetOr(json, "multi_query", true, source) ? 1 : config.num_attention_heads;
  config.position_embedding_type = PositionEmbedding::kLearnedAbsolute;
  config.attn_bias = config.mlp_bias = true;
  config.finalize(source);
  return config;
}

WeightTable gptBigCodeTable(const ModelConfig& c) {
  const auto qkv = [&](DecoderRows& rows) {
    const std::string layer = "transformer.h.{layer}.", attention = "attn.c_attn";
    const int64_t all = QkvRows(c).all;
    if (c.num_key_value_heads == 1) {
      // With one KV head, the source has the rows in the order of the checkpoint.
      rows.qkv({{layer + attention + ".weight", 0, all}}, {{kAttnQkv, attention, 0, all}}, true);
    } else {
      rows.groupedQkv(layer, attention, true);
    }
  };
  return gpt2Table(c, {.qkv = qkv});
}

std::vector<std::string> gptBigCodeIgnoredSources() {
  std::vector<std::string> ignored = gpt2IgnoredSources();
  ignored.emplace_back("transformer.bias");  // a mask
  return ignored;
}
}  // namespace

Architecture gptBigCodeArchitecture() {
  return {.name = "GPTBigCodeForCausalLM",
          .configFromHuggingFace = gptBigCodeConfig,
          .weightTable = gptBigCodeTable,
          .modelSpec = gpt2Spec,
          .ignored_sources = gptBigCodeIgnoredSources(),
          .fields = gpt2Fields(),
          .models = {"StarCoder", "SantaCoder"},
          .structure = "GPT-2 with one KV head, or with fused q, k and v by head"};
}

}  // namespace chorus
