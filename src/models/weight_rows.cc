#include "models/weight_rows.h"

#include <algorithm>
#include <utility>

#include "checkpoint/names.h"

namespace chorus {

WeightRow linearRow(WeightSlot slot, std::string name, int64_t out, int64_t in, ShardRule shard,
                    std::vector<WeightSource> sources, std::vector<LoraTarget> targets) {
  return {.name = std::move(name),
          .shape = {out, in},
          .slot = slot,
          .shard = std::move(shard),
          .sources = std::move(sources),
          .lora_targets = std::move(targets),
          .quantisable = true};
}

WeightRow normRow(NormId id, std::string name, int64_t size, Stage stage, std::string source,
                  const SourceTransform& transform) {
  return {.name = std::move(name),
          .shape = {size},
          .slot = slotOf(id),
          .stage = stage,
          .sources = {{.name = std::move(source), .rows = size, .transform = transform}}};
}

WeightRow biasOf(const WeightRow& row) {
  const auto biasName = [](const std::string& weight) { return std::string(moduleOf(weight)) + ".bias"; };
  WeightRow bias = {.name = biasName(row.name), .shape = {row.shape[0]}, .slot = row.slot.bias(), .stage = row.stage};
  if (row.shard.axis == ShardRule::Axis::kRows) bias.shard = row.shard;
  for (WeightSource source : row.sources) {
    source.name = biasName(source.name);
    source.transform.transposed = false;
    source.transform.add = 0.0f;
    bias.sources.push_back(std::move(source));
  }
  return bias;
}

std::string renamed(std::string name, const Naming& naming) {
  for (const auto& [beginning, instead] : naming) {
    if (name.starts_with(beginning)) return name.replace(0, beginning.size(), instead);
  }
  return name;
}

WeightTable withNamings(WeightTable table, const std::vector<Naming>& namings) {
  for (WeightRow& row : table) {
    std::vector<WeightSource> sources;
    int32_t spellings = 1;
    for (const WeightSource& source : row.sources) {
      if (source.format != SourceFormat::kHuggingFace)
        sources.push_back(source);
      else
        spellings = std::max(spellings, source.spelling + 1);
    }
    for (size_t i = 0; i < namings.size(); ++i) {
      for (WeightSource source : row.sources) {
        if (source.format != SourceFormat::kHuggingFace) continue;
        source.name = renamed(std::move(source.name), namings[i]);
        source.spelling += static_cast<int32_t>(i) * spellings;
        sources.push_back(std::move(source));
      }
    }
    row.sources = std::move(sources);
  }
  return table;
}

WeightRow embeddingRow(const ModelConfig& config, std::string source) {
  ShardRule shard;
  if (config.use_parallel_embedding) {
    shard.axis = config.embedding_sharding_dim == 0 ? ShardRule::Axis::kRows : ShardRule::Axis::kColumns;
    shard.pad_rows = config.embedding_sharding_dim == 0;
  }
  return {.name = std::string(kEmbeddingTensor),
          .shape = {config.vocab_size, config.embedding_size},
          .slot = slotOf(TableId::kTokens),
          .stage = Stage::kFirst,
          .shard = shard,
          .sources = {{std::move(source), 0, config.vocab_size}}};
}

WeightRow headRow(const ModelConfig& config, std::string source, std::string embedding_source) {
  return {
      .name = std::string(kHeadTensor),
      .shape = {config.vocab_size, config.embedding_size},
      .slot = slotOf(LinearId::kHead),
      .stage = Stage::kLast,
      .shard = {.axis = ShardRule::Axis::kRows, .pad_rows = true},
      .sources = {{config.tie_word_embeddings ? std::move(embedding_source) : std::move(source), 0, config.vocab_size}},
      .quantisable = true};
}

}  // namespace chorus
