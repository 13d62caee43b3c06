// The functions of RankGroup that prepare an adapter: they cut it for every rank, normalise its magnitudes over all
// ranks, and pack every rank's share.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/error.h"

#include "engine/adapter_limits.h"
#include "engine/rank_group.h"
#include "lora/adapter.h"
#include "lora/adapter_builder.h"
#include "lora/module_ids.h"
#include "lora/shard.h"

namespace chorus {
namespace {

// Whether each tensor-parallel rank holds only some inputs of the module's output rows, so that squared norms must be
// added up over the ranks.
bool isSummed(const AdapterModule& module, const ModelConfig& config, const WeightTable& table) {
  if (module.module_id == kOutputHead) return false;
  // A rank that holds all rows of the table already has the whole sum.
  if (module.module_id == kTokenEmbedding) return config.use_parallel_embedding && config.embedding_sharding_dim == 0;
  return findModule(table, module.module_id, module.layer)->row->shard.axis == ShardRule::Axis::kColumns;
}

// Replaces DoRA's magnitudes m by m / ||W + scale B A||, with the norm over each whole output row (PEFT's
// DoraLinearLayer). parts: the shards of the tensor-parallel ranks of one stage, which have the same modules. If a
// linear is cut along its inputs, each rank holds a part of every row; the squares are then added in rank order, so
// that all ranks get the same factors.
void normaliseMagnitudes(std::span<Adapter> parts, std::span<const Session* const> sessions, const ModelConfig& config,
                         const WeightTable& table) {
  for (size_t m = 0; m < parts.front().modules.size(); ++m) {
    const AdapterModule& first = parts.front().modules[m];
    if (first.magnitude.empty() || first.magnitude_is_normalised) continue;
    std::vector<std::vector<double>> squares;
    for (size_t r = 0; r < parts.size(); ++r) {
      squares.push_back(sessions[r]->squaredRowNorms(parts[r], parts[r].modules[m]));
    }
    if (isSummed(first, config, table)) {
      std::vector<double> sum(squares.front().size());
      for (const auto& some : squares) {
        for (size_t o = 0; o < sum.size(); ++o) sum[o] += some[o];
      }
      squares.assign(parts.size(), sum);
    }
    for (size_t r = 0; r < parts.size(); ++r) {
      AdapterModule& module = parts[r].modules[m];
      for (size_t o = 0; o < module.magnitude.size(); ++o) {
        // Padding of the vocabulary has neither weights nor a magnitude.
        if (module.magnitude[o] != 0) module.magnitude[o] /= static_cast<float>(std::sqrt(squares[r][o]));
      }
      module.magnitude_is_normalised = true;
    }
  }
}
}  // namespace

std::shared_ptr<const PreparedAdapter> RankGroup::prepareAdapter(const Adapter& adapter) const {
  assert(!adapter.only_shapes);
  checkServable(adapter, engine().buildConfig());
  const ModelConfig& config = engine().config();
  auto prepared = std::make_shared<PreparedAdapter>();
  prepared->content_hash = adapter.content_hash;
  prepared->elements = adapterElements(adapter);
  prepared->adapts_parameters = adapter.adapts_parameters;
  // Prepares one stage at a time, so that only that stage's part of the adapter is in memory twice.
  for (int32_t begin = 0; begin < size(); begin += config.mapping.tp_size) {
    std::vector<Adapter> parts;
    std::vector<const Session*> sessions;
    for (int32_t rank = begin; rank < begin + config.mapping.tp_size; ++rank) {
      parts.push_back(shardAdapter(adapter, config, table_, rank));
      sessions.push_back(&session(rank));
      sessions.back()->dropCopiesOfBase(parts.back());
    }
    normaliseMagnitudes(parts, sessions, config, table_);
    for (size_t r = 0; r < parts.size(); ++r) {
      prepared->ranks.push_back(sessions[r]->packAdapter(parts[r]));
      prepared->bytes += prepared->ranks.back()->bytes();
    }
  }
  const int64_t most = config.vocab_size + session(0).options().max_added_tokens;
  if (prepared->vocabSize() > most || prepared->vocabSize() > std::max(prepared->inputVocabSize(), config.vocab_size)) {
    fail(ErrorCode::kUnsupported,
         "adapter '{}' has logits of {} tokens and takes {}: a model of {} serves adapters with at most {}, all of "
         "which "
         "they take",
         adapter.name, prepared->vocabSize(), prepared->inputVocabSize(), config.vocab_size, most);
  }
  return prepared;
}

int64_t RankGroup::preparedBytes(const Adapter& adapter) const {
  checkServable(adapter, engine().buildConfig());
  int64_t bytes = 0;
  for (int32_t rank = 0; rank < size(); ++rank) {
    Adapter part = shardAdapter(adapter, engine().config(), table_, rank);
    if (!part.only_shapes) session(rank).dropCopiesOfBase(part);
    bytes += session(rank).packedBytes(part);
  }
  return bytes;
}

}  // namespace chorus
