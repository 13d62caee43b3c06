#include "models/decoder_rows.h"

#include "lora/module_ids.h"
#include "models/weight_rows.h"

namespace chorus {
namespace {

using Axis = ShardRule::Axis;

std::string checkpointInLayer(const std::string& name) { return "transformer.layers.{layer}." + name; }

// A linear outside layers that every tensor-parallel rank holds whole.
WeightRow projection(LinearId id, std::string name, int64_t out, int64_t in, Stage stage, std::string source) {
  WeightRow row = linearRow(slotOf(id), std::move(name), out, in, {}, {{std::move(source), 0, out}}, {});
  row.stage = stage;
  row.quantisable = false;
  return row;
}
}  // namespace

void DecoderRows::add(const WeightRow& row, bool bias) {
  table_.push_back(row);
  if (bias) table_.push_back(biasOf(row));
}

void DecoderRows::embedding(std::string source) {
  embedding_source_ = source;
  table_.push_back(embeddingRow(config_, std::move(source)));
}

void DecoderRows::positions(WeightSource source) {
  table_.push_back({.name = "transformer.position_embedding.weight",
                    .shape = {config_.max_position_embeddings, config_.hidden_size},
                    .slot = slotOf(TableId::kPositions),
                    .stage = Stage::kFirst,
                    .sources = {std::move(source)}});
}

void DecoderRows::projectIn(std::string source) {
  table_.push_back(projection(LinearId::kProjectIn, "transformer.project_in.weight", config_.hidden_size,
                              config_.embedding_size, Stage::kFirst, std::move(source)));
}

void DecoderRows::projectOut(std::string source) {
  table_.push_back(projection(LinearId::kProjectOut, "transformer.project_out.weight", config_.embedding_size,
                              config_.hidden_size, Stage::kLast, std::move(source)));
}

void DecoderRows::norm(NormId id, const std::string& name, const std::string& source) {
  const Stage stage = id == NormId::kEmbedding ? Stage::kFirst
                      : id == NormId::kFinal   ? Stage::kLast
                                               : Stage::kEveryLayer;
  const std::string weight = name + ".weight";
  table_.push_back(normRow(id, stage == Stage::kEveryLayer ? checkpointInLayer(weight) : "transformer." + weight,
                           config_.hidden_size, stage, source + ".weight", norms_));
}

void DecoderRows::layerNorm(NormId id, const std::string& name, const std::string& source) {
  norm(id, name, source);
  table_.push_back(biasOf(table_.back()));
}

void DecoderRows::qkNorms(QkNorm kind, std::string query_source, std::string key_source) {
  const QkvRows rows(config_);
  const bool whole = kind == QkNorm::kWholeRow;
  table_.push_back(normRow(NormId::kQuery, checkpointInLayer("attention.q_layernorm.weight"),
                           whole ? rows.q : config_.head_size, Stage::kEveryLayer, std::move(query_source), norms_));
  table_.push_back(normRow(NormId::kKey, checkpointInLayer("attention.k_layernorm.weight"),
                           whole ? rows.kv : config_.head_size, Stage::kEveryLayer, std::move(key_source), norms_));
}

void DecoderRows::qkv(std::vector<WeightSource> sources, std::vector<LoraTarget> targets, bool bias) {
  const QkvRows rows(config_);
  const int64_t d = config_.head_size;
  add(linearRow(slotOf(LinearId::kQkv), checkpointInLayer("attention.qkv.weight"), rows.all, config_.hidden_size,
                {.axis = Axis::kRows, .parts = {rows.q, rows.kv, rows.kv}, .head_rows = {0, d, d}}, std::move(sources),
                std::move(targets)),
      bias);
}

void DecoderRows::groupedQkv(const std::string& source_prefix, const std::string& module, bool bias) {
  const QkvRows all(config_);
  const int64_t d = config_.head_size, queries = all.q / config_.num_key_value_heads, group = queries + 2 * d;
  const SourceRows q = {.total = all.all, .begin = 0, .block = queries, .stride = group};
  const SourceRows k = {.total = all.all, .begin = queries, .block = d, .stride = group};
  const SourceRows v = {.total = all.all, .begin = queries + d, .block = d, .stride = group};
  const std::string source = source_prefix + module + ".weight";
  qkv({{source, 0, all.q, q}, {source, all.q, all.kv, k}, {source, all.q + all.kv, all.kv, v}},
      {{kAttnQ, module, 0, all.q, q}, {kAttnK, module, all.q, all.kv, k}, {kAttnV, module, all.q + all.kv, all.kv, v}},
      bias);
}

void DecoderRows::dense(WeightSource source, std::string module, bool bias) {
  const int64_t h = config_.hidden_size;
  add(linearRow(slotOf(LinearId::kDense), checkpointInLayer("attention.dense.weight"), h, QkvRows(config_).q,
                {.axis = Axis::kColumns}, {std::move(source)}, {{kAttnDense, std::move(module), 0, h}}),
      bias);
}

void DecoderRows::fc(WeightSource source, std::string module, bool bias) {
  const int64_t f = config_.intermediate_size;
  add(linearRow(slotOf(LinearId::kFc), checkpointInLayer("mlp.fc.weight"), f, config_.hidden_size,
                {.axis = Axis::kRows}, {std::move(source)}, {{kMlpHTo4H, std::move(module), 0, f}}),
      bias);
}

void DecoderRows::gatedFc(Half fc, Half gate, bool bias) {
  const int64_t f = config_.intermediate_size, h = config_.hidden_size;
  add(linearRow(slotOf(LinearId::kFc), checkpointInLayer("mlp.fc.weight"), f, h, {.axis = Axis::kRows},
                std::move(fc.sources), std::move(fc.targets)),
      bias);
  add(linearRow(slotOf(LinearId::kFc, f), checkpointInLayer("mlp.gate.weight"), f, h, {.axis = Axis::kRows},
                std::move(gate.sources), std::move(gate.targets)),
      bias);
}

void DecoderRows::proj(WeightSource source, std::string module, bool bias) {
  const int64_t h = config_.hidden_size;
  add(linearRow(slotOf(LinearId::kProj), checkpointInLayer("mlp.proj.weight"), h, config_.intermediate_size,
                {.axis = Axis::kColumns}, {std::move(source)}, {{kMlp4HToH, std::move(module), 0, h}}),
      bias);
}

void DecoderRows::head(const std::string& source, bool bias) {
  if (!sharesEmbedding(config_)) table_.push_back(headRow(config_, source, embedding_source_));
  // A head that is tied to the embedding has a bias of its own.
  if (bias) table_.push_back(biasOf(headRow(config_, source, source)));
}

std::vector<WeightSource> separateQkvSources(const ModelConfig& config, const std::string& source_prefix,
                                             const std::string (&modules)[3]) {
  const QkvRows rows(config);
  return {{source_prefix + modules[0] + ".weight", 0, rows.q},
          {source_prefix + modules[1] + ".weight", rows.q, rows.kv},
          {source_prefix + modules[2] + ".weight", rows.q + rows.kv, rows.kv}};
}

std::vector<LoraTarget> separateQkvTargets(const ModelConfig& config, const std::string (&modules)[3],
                                           TorchtuneRows torchtune) {
  const QkvRows rows(config);
  return {{kAttnQ, modules[0], 0, rows.q, {}, torchtune},
          {kAttnK, modules[1], rows.q, rows.kv, {}, torchtune},
          {kAttnV, modules[2], rows.q + rows.kv, rows.kv}};
}

}  // namespace chorus
