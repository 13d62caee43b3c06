#include "lora/shard.h"

#include <algorithm>
#include <cstring>

#include "base/background_throttle.h"
#include "checkpoint/shard.h"
#include "lora/adapter_builder.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

// Takes the rows of `runs` from a row-major matrix of `cols` columns; a run with begin -1 gives rows of zeros.
std::vector<std::byte> takeRows(const std::byte* data, int64_t cols, DType dtype, const std::vector<RowRun>& runs,
                                BackgroundThrottle* throttle) {
  const size_t row_bytes = static_cast<size_t>(cols) * dtypeSize(dtype);
  std::vector<std::byte> out;
  for (const RowRun& run : runs) {
    const size_t bytes = static_cast<size_t>(run.rows) * row_bytes;
    if (run.begin < 0) {
      out.resize(out.size() + bytes);
      continue;
    }
    const std::byte* begin = data + static_cast<size_t>(run.begin) * row_bytes;
    inPieces(run.rows, row_bytes, throttle, [&](int64_t row, int64_t rows) {
      const std::byte* piece = begin + static_cast<size_t>(row) * row_bytes;
      out.insert(out.end(), piece, piece + static_cast<size_t>(rows) * row_bytes);
    });
  }
  return out;
}

std::vector<std::byte> takeColumns(const std::byte* data, int64_t rows, int64_t cols, int64_t begin, int64_t count,
                                   DType dtype, BackgroundThrottle* throttle) {
  const size_t size = dtypeSize(dtype);
  std::vector<std::byte> out(static_cast<size_t>(rows * count) * size);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(out.data() + static_cast<size_t>(row * count) * size,
                data + static_cast<size_t>(row * cols + begin) * size, static_cast<size_t>(count) * size);
    chargeThrottle(throttle, static_cast<size_t>(count) * size);
  }
  return out;
}

const std::byte* store(Adapter& adapter, std::vector<std::byte> bytes) {
  const auto held = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  adapter.storage.push_back(held);
  return held->data();
}

std::vector<float> takeValues(const std::vector<float>& values, const std::vector<RowRun>& runs, int64_t cols = 1) {
  std::vector<float> taken;
  if (values.empty()) return taken;
  for (const RowRun& run : runs) {
    if (run.begin < 0) {
      taken.insert(taken.end(), static_cast<size_t>(run.rows * cols), 0.0f);
    } else {
      const auto begin = values.begin() + run.begin * cols;
      taken.insert(taken.end(), begin, begin + run.rows * cols);
    }
  }
  return taken;
}

int64_t rowsOf(const std::vector<RowRun>& runs) {
  int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows;
  return rows;
}

void cutOutputs(AdapterModule& module, const std::vector<RowRun>& runs, Adapter& into, BackgroundThrottle* throttle) {
  if (!into.only_shapes) module.b = store(into, takeRows(module.b, module.rank, module.dtype, runs, throttle));
  module.magnitude = takeValues(module.magnitude, runs);
  module.bias = takeValues(module.bias, runs);
  module.out = rowsOf(runs);
}

void cutInputs(AdapterModule& module, int64_t begin, int64_t count, Adapter& into, BackgroundThrottle* throttle) {
  if (!into.only_shapes)
    module.a = store(into, takeColumns(module.a, module.rank, module.in, begin, count, module.dtype, throttle));
  module.in = count;
}

void cutRows(AdapterWeight& weight, const std::vector<RowRun>& runs, Adapter& into, BackgroundThrottle* throttle) {
  if (!into.only_shapes) weight.data = store(into, takeRows(weight.data, weight.cols, weight.dtype, runs, throttle));
  weight.rows = rowsOf(runs);
}

void cutColumns(AdapterWeight& weight, int64_t begin, int64_t count, Adapter& into, BackgroundThrottle* throttle) {
  if (!into.only_shapes) {
    weight.data = store(into, takeColumns(weight.data, weight.rows, weight.cols, begin, count, weight.dtype, throttle));
  }
  weight.cols = count;
}

// Builds one rank's shard of an adapter.
class Cut {
 public:
  Cut(const Adapter& whole, const ModelConfig& config, const WeightTable& table, int32_t rank, Adapter& part,
      BackgroundThrottle* throttle)
      : whole_(whole),
        config_(config),
        table_(table),
        tp_size_(config.mapping.tp_size),
        tp_rank_(config.mapping.tpRank(rank)),
        stage_(config.mapping.ppRank(rank)),
        layers_(stageLayers(config.num_hidden_layers, config.mapping, stage_)),
        part_(part),
        throttle_(throttle) {}

  void run() {
    for (const AdapterModule& module : whole_.modules) add(module);
    for (const AdapterWeight& weight : whole_.weights) add(weight);
    if (firstStage()) addEmbeddingTokens();
    if (lastStage()) addHeadTokens();
  }

 private:
  bool firstStage() const { return stage_ == 0; }
  bool lastStage() const { return stage_ + 1 == config_.mapping.pp_size; }
  bool holds(int32_t layer) const { return layer >= layers_.begin && layer < layers_.end; }

  void add(AdapterModule module) {
    if (module.module_id == kTokenEmbedding) {
      if (firstStage()) addEmbedding(std::move(module));
      return;
    }
    if (module.module_id == kOutputHead) {
      if (!lastStage()) return;
      cutOutputs(module, headRuns(module.out), part_, throttle_);
      part_.modules.push_back(std::move(module));
      return;
    }
    if (!holds(module.layer)) return;
    const ModulePlace place = *findModule(table_, module.module_id, module.layer);
    const WeightRow& row = *place.row;
    if (row.shard.axis == ShardRule::Axis::kRows) {
      const auto runs = sliceRowsForRank(row, place.target->row_begin, place.target->rows, tp_size_, tp_rank_);
      if (runs.empty()) return;
      cutOutputs(module, runs, part_, throttle_);
    } else if (row.shard.axis == ShardRule::Axis::kColumns) {
      const TensorSlice slice = sliceForRank(row, tp_size_, tp_rank_);
      cutInputs(module, slice.col_begin, slice.cols, part_, throttle_);
      if (tp_rank_ != 0) module.bias.clear();
    }
    part_.modules.push_back(std::move(module));
  }

  void add(AdapterWeight weight) {
    if (weight.slot == slotOf(TableId::kTokens)) {
      if (!firstStage()) return;
      if (cutsVocabulary()) {
        const TokenRange share = tokenShare(weight.rows, tp_size_, tp_rank_);
        cutRows(weight, {{share.begin, share.count}}, part_, throttle_);
        weight.row_begin = share.begin;
      } else if (cutsHidden()) {
        cutColumns(weight, hiddenBegin(), hiddenShare(), part_, throttle_);
      }
    } else if (weight.slot.weight() == slotOf(LinearId::kHead)) {
      if (!lastStage()) return;
      cutRows(weight, headRuns(weight.rows), part_, throttle_);
    } else {
      const WeightRow& row = *findRow(table_, weight.slot);
      const bool here = row.stage == Stage::kEveryLayer ? holds(weight.layer)
                        : row.stage == Stage::kFirst    ? firstStage()
                                                        : lastStage();
      if (!here) return;
      if (row.shard.axis == ShardRule::Axis::kRows) {
        const auto runs = sliceRowsForRank(row, weight.row_begin, weight.rows, tp_size_, tp_rank_);
        if (runs.empty()) return;
        cutRows(weight, runs, part_, throttle_);
        weight.row_begin = rankRowBegin(row, weight.row_begin, tp_size_, tp_rank_);
      } else if (row.shard.axis == ShardRule::Axis::kColumns) {
        const TensorSlice slice = sliceForRank(row, tp_size_, tp_rank_);
        cutColumns(weight, slice.col_begin, slice.cols, part_, throttle_);
      } else if (row.slot.kind == SlotKind::kLinear && row.slot.isBias() && tp_rank_ != 0) {
        return;  // it is added before the ranks are summed up
      }
    }
    part_.weights.push_back(std::move(weight));
  }

  bool cutsVocabulary() const {
    return tp_size_ > 1 && config_.use_parallel_embedding && config_.embedding_sharding_dim == 0;
  }
  bool cutsHidden() const {
    return tp_size_ > 1 && config_.use_parallel_embedding && config_.embedding_sharding_dim == 1;
  }
  int64_t hiddenShare() const { return config_.embedding_size / tp_size_; }
  int64_t hiddenBegin() const { return tp_rank_ * hiddenShare(); }
  bool hasOwnTable() const {
    return std::any_of(whole_.weights.begin(), whole_.weights.end(),
                       [](const AdapterWeight& weight) { return weight.slot == slotOf(TableId::kTokens); });
  }
  int64_t inputVocabulary() const { return whole_.input_vocab_size > 0 ? whole_.input_vocab_size : config_.vocab_size; }

  void addEmbedding(AdapterModule module) {
    if (cutsVocabulary()) {
      const TokenRange share = tokenShare(module.in, tp_size_, tp_rank_);
      cutInputs(module, share.begin, share.count, part_, throttle_);
    } else if (cutsHidden()) {
      cutOutputs(module, {{hiddenBegin(), hiddenShare()}}, part_, throttle_);
    }
    part_.modules.push_back(std::move(module));
  }

  // Appends own.cols values of row `index`, from column `begin` on.
  void addRow(const AdapterTokens& all, size_t index, int64_t begin, AdapterTokens& own) const {
    if (part_.only_shapes) return;
    const auto row = all.rows.begin() + static_cast<int64_t>(index) * all.cols + begin;
    own.rows.insert(own.rows.end(), row, row + own.cols);
  }

  void addEmbeddingTokens() {
    const AdapterTokens& all = whole_.embedding_tokens;
    // When the vocabulary is cut, each replaced row goes to the rank that holds its token. Tokens beyond the base's
    // table, which have rows only in embedding_tokens, go to the last rank.
    const int64_t table = hasOwnTable() ? inputVocabulary() : config_.vocab_size;
    TokenRange share = cutsVocabulary() ? tokenShare(table, tp_size_, tp_rank_) : TokenRange{0, table};
    if (!cutsVocabulary() || tp_rank_ + 1 == tp_size_) share.count = inputVocabulary() - share.begin;
    AdapterTokens& own = part_.embedding_tokens;
    own.cols = cutsHidden() ? hiddenShare() : all.cols;
    for (size_t i = 0; i < all.tokens.size(); ++i) {
      if (all.tokens[i] < share.begin || all.tokens[i] >= share.begin + share.count) continue;
      own.tokens.push_back(all.tokens[i]);
      addRow(all, i, cutsHidden() ? hiddenBegin() : 0, own);
    }
  }

  // This rank's rows of an output head of `rows` tokens: its share of the model's tokens, padded with zeros to the size
  // of the largest share, then all tokens that the adapter adds.
  std::vector<RowRun> headRuns(int64_t rows) const {
    const TokenRange share = tokenShare(config_.vocab_size, tp_size_, tp_rank_);
    const int64_t padding = tokenShare(config_.vocab_size, tp_size_, 0).count - share.count;
    std::vector<RowRun> runs;
    if (share.count > 0) runs.push_back({share.begin, share.count});
    if (padding > 0) runs.push_back({-1, padding});
    if (rows > config_.vocab_size) runs.push_back({config_.vocab_size, rows - config_.vocab_size});
    return runs;
  }

  void addHeadTokens() {
    const AdapterTokens& all = whole_.head_tokens;
    const TokenRange share = tokenShare(config_.vocab_size, tp_size_, tp_rank_);
    const int64_t added = tokenShare(config_.vocab_size, tp_size_, 0).count - config_.vocab_size;
    part_.head_tokens.cols = all.cols;
    for (size_t i = 0; i < all.tokens.size(); ++i) {
      const int64_t token = all.tokens[i];
      const bool is_added = token >= config_.vocab_size;
      if (!is_added && (token < share.begin || token >= share.begin + share.count)) continue;
      part_.head_tokens.tokens.push_back(static_cast<int32_t>(is_added ? token + added : token - share.begin));
      addRow(all, i, 0, part_.head_tokens);
    }
  }

  const Adapter& whole_;
  const ModelConfig& config_;
  const WeightTable& table_;
  int32_t tp_size_, tp_rank_, stage_;
  LayerRange layers_;
  Adapter& part_;
  BackgroundThrottle* throttle_;
};
}  // namespace

TokenRange tokenShare(int64_t vocab, int32_t tp_size, int32_t tp_rank) {
  const int64_t each = (vocab + tp_size - 1) / tp_size;
  const int64_t begin = std::min(tp_rank * each, vocab);
  return {begin, std::min(each, vocab - begin)};
}

Adapter shardAdapter(const Adapter& adapter, const ModelConfig& config, const WeightTable& table, int32_t rank,
                     BackgroundThrottle* throttle) {
  if (config.mapping.worldSize() == 1) return adapter;
  Adapter part = adapter;
  part.modules.clear();
  part.weights.clear();
  part.embedding_tokens = {};
  part.head_tokens = {};
  Cut(adapter, config, table, rank, part, throttle).run();
  return part;
}

}  // namespace chorus
