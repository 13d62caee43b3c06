#include "engine/rank.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "lora/adapter.h"
#include "lora/adapter_builder.h"
#include "lora/module_ids.h"
#include "lora/shard.h"
#include "models/architecture.h"
#include "models/compose_adapters.h"

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
}  // namespace

Rank::Rank(std::shared_ptr<const Engine> engine, std::shared_ptr<Backend> backend, const SessionOptions& options,
           RankCommunicators communicators, FindAdapter find_adapter)
    : table_(engine->architecture().weightTable(engine->config())),
      communicators_(std::move(communicators)),
      find_adapter_(std::move(find_adapter)),
      session_(std::move(engine), std::move(backend), options,
               RankLinks{communicators_.tensor.get(), communicators_.pipeline.get()}) {}

std::span<const float> Rank::step(std::span<const std::byte> command) { return session_.run(decoder_.decode(command)); }

AdapterReport Rank::adapter(std::span<const std::byte> command, BackgroundThrottle* throttle) {
  const AdapterId id = decodeAdapter(command);
  switch (commandOf(command)) {
    case RankCommand::kPrepare:
      return prepare(id, throttle);
    case RankCommand::kMeasure:
      return measure(id, throttle);
    case RankCommand::kCompose:
      return compose(id, decodeComposedTerms(command));
    case RankCommand::kDrop:
      session_.adapters().drop(id);
      return {};
    default:
      fail(ErrorCode::kInternal, "a rank got an unknown command {}", static_cast<uint32_t>(commandOf(command)));
  }
}

Adapter Rank::shareOf(AdapterId id, BackgroundThrottle* throttle) const {
  const Engine& engine = session_.engine();
  Adapter share = shardAdapter(find_adapter_(id), engine.config(), table_, engine.rank(), throttle);
  if (!share.only_shapes) session_.dropCopiesOfBase(share, throttle);
  return share;
}

AdapterReport Rank::prepare(AdapterId id, BackgroundThrottle* throttle) {
  Adapter share = shareOf(id, throttle);
  normaliseMagnitudes(share, throttle);
  std::shared_ptr<const AdapterParts> parts = session_.packAdapter(share, throttle);
  AdapterReport report{static_cast<int64_t>(parts->bytes()), compositionRefusal(*parts)};
  session_.adapters().add(id, std::move(parts));
  return report;
}

AdapterReport Rank::measure(AdapterId id, BackgroundThrottle* throttle) const {
  return {session_.packedBytes(shareOf(id, throttle)), ""};
}

AdapterReport Rank::compose(AdapterId id, std::span<const ComposedTerm> terms) {
  std::vector<WeightedParts> shares;
  for (const ComposedTerm& term : terms) shares.push_back({session_.adapters().at(term.adapter), term.weight});
  session_.adapters().add(id, composeParts(shares));
  return {};
}

// Replaces DoRA's magnitudes m by m / ||W + scale B A||, with the norm over each whole output row (PEFT's
// DoraLinearLayer). The ranks of a stage have the same modules. If a linear is cut along its inputs, each rank holds a
// part of every row; the sums of all ranks give each of them the same factors.
void Rank::normaliseMagnitudes(Adapter& share, BackgroundThrottle* throttle) const {
  for (AdapterModule& module : share.modules) {
    if (module.magnitude.empty() || module.magnitude_is_normalised) continue;
    std::vector<double> squares = session_.squaredRowNorms(share, module, throttle);
    if (isSummed(module, session_.engine().config(), table_)) sumOverRanks(squares);
    for (size_t o = 0; o < module.magnitude.size(); ++o) {
      // Padding of the vocabulary has neither weights nor a magnitude.
      if (module.magnitude[o] != 0) module.magnitude[o] /= static_cast<float>(std::sqrt(squares[o]));
    }
    module.magnitude_is_normalised = true;
  }
}

void Rank::sumOverRanks(std::span<double> values) const {
  if (communicators_.adapters == nullptr) return;
  Backend& backend = session_.backend();
  const Stream stream;
  const DeviceBuffer sums = backend.allocate(values.size_bytes());
  backend.upload(sums.data(), values.data(), values.size_bytes(), stream);
  const auto count = static_cast<int64_t>(values.size());
  communicators_.adapters->allReduceSum({sums.data(), 1, count, count, DType::kFloat64}, stream);
  backend.download(values.data(), sums.data(), values.size_bytes(), stream);
  backend.synchronize(stream);
}

}  // namespace chorus
