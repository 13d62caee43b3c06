// The rows that most architectures' weight tables are made of.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/weight_table.h"

namespace chorus {

// A linear of every layer, [out, in], or the part of it that begins at slot.row_begin.
WeightRow linearRow(WeightSlot slot, std::string name, int64_t out, int64_t in, ShardRule shard,
                    std::vector<WeightSource> sources, std::vector<LoraTarget> targets);

// A norm's weight, [size], whole on every rank.
WeightRow normRow(NormId id, std::string name, int64_t size, Stage stage, std::string source,
                  const SourceTransform& transform = {});

// The bias of a linear row: cut as its output rows are; whole where the linear is cut along its input, because it is
// added once, after the ranks' sums are added up. Its sources are the weight's with "bias" for "weight"; the source
// does not transpose them, nor add anything to them.
WeightRow biasOf(const WeightRow& row);

// Differences between the names in a table and those in a source. A pair is the beginning of a name in the table and
// what the name begins with in the source; the first pair that fits a name is used.
using Naming = std::vector<std::pair<std::string, std::string>>;
std::string renamed(std::string name, const Naming& naming);
// The table for Hugging Face's files that have any of these namings: each one is a further spelling of all sources
// (WeightSource::spelling), in their order.
WeightTable withNamings(WeightTable table, const std::vector<Naming>& namings);

// The embedding table, cut as the config says.
WeightRow embeddingRow(const ModelConfig& config, std::string source);
// The output head, from the embedding's source where the model ties them; for models that do not share it.
WeightRow headRow(const ModelConfig& config, std::string source, std::string embedding_source);

}  // namespace chorus
