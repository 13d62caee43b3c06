#include "engine/engine_layout.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

EngineTensorKind kindOf(const WeightSlot& slot) {
  if (slot.isBias() || slot.kind == SlotKind::kNorm) return EngineTensorKind::kVector;
  return slot.kind == SlotKind::kTable ? EngineTensorKind::kTable : EngineTensorKind::kLinear;
}

// The engine tensor, without a name, of a slot that has only this checkpoint tensor. Biases and norms become float32.
EngineTensor packedTensor(const RankTensor& tensor) {
  EngineTensor packed = {.kind = kindOf(tensor.row->slot)};
  if (packed.kind == EngineTensorKind::kVector) {
    packed.rows = 1;
    packed.cols = tensor.shape[0];
    return packed;
  }
  const WeightFormat format = tensor.role == TensorRole::kIntegers ? tensor.format : WeightFormat(tensor.dtype);
  packed.dtype = format.dtype;
  packed.group = format.group;
  packed.scale_dtype = format.scale_dtype;
  packed.activations = format.activations;
  packed.rows = tensor.rows();
  packed.cols = tensor.cols();
  if (format.activations == InputFormat::kInt8PerToken && packed.cols > kMostInputsPerToken) {
    fail(ErrorCode::kUnsupported, "{} has {} inputs; with activations {} at most {} are supported", tensor.name,
         packed.cols, inputFormatName(format.activations), kMostInputsPerToken);
  }
  packed.experts = tensor.row->experts;
  return packed;
}

// Adds an output head that is made of the embedding table, for a model whose head is tied to it.
void addTiedHead(const RankTensor& embedding, const ModelConfig& config, int32_t rank, EngineLayout& layout) {
  const TiedHead head = tiedHead(config, rank);
  layout.pieces.push_back({&embedding, head.begin, head.rows, layout.tensors.size(), 0});
  layout.tensors.push_back({.name = std::string(moduleOf(kHeadTensor)),
                            .kind = EngineTensorKind::kLinear,
                            .dtype = embedding.dtype,
                            .rows = vocabularyShare(config),
                            .cols = config.embedding_size});
  layout.places.push_back({kOutsideLayers, slotOf(LinearId::kHead), embedding.row});
}

class LayoutBuilder {
 public:
  explicit LayoutBuilder(int32_t first_layer) : first_layer_(first_layer) {}

  void add(const RankTensor& tensor) {
    const WeightSlot& slot = tensor.row->slot;
    const auto [found, is_new] = index_.emplace(std::pair(tensor.layer, slot.whole()), layout_.tensors.size());
    const size_t target = found->second;
    layout_.pieces.push_back({&tensor, 0, tensor.rows(), target, tensor.slot_begin});
    if (tensor.role == TensorRole::kScales) return;
    if (is_new) {
      begin(tensor);
    } else {
      append(tensor, target);
    }
  }

  EngineLayout finish() {
    for (size_t i = 0; i < layout_.tensors.size(); ++i) {
      if (layout_.places[i].slot.isBias()) layout_.tensors[i].name += ".bias";
    }
    return std::move(layout_);
  }

 private:
  void begin(const RankTensor& tensor) {
    EngineTensor packed = packedTensor(tensor);
    packed.name = moduleOf(tensor.name);
    layout_.tensors.push_back(std::move(packed));
    const int32_t layer = tensor.layer == kOutsideLayers ? kOutsideLayers : tensor.layer - first_layer_;
    layout_.places.push_back({layer, tensor.row->slot.whole(), tensor.row});
  }

  // The name of a fused tensor lists its modules: mlp.fc and mlp.gate become mlp.fc_gate.
  void append(const RankTensor& tensor, size_t target) {
    EngineTensor& whole = layout_.tensors[target];
    const EngineTensor part = packedTensor(tensor);
    const std::string_view module = moduleOf(tensor.name);
    whole.name.append("_").append(module.substr(module.rfind('.') + 1));
    if (whole.format() != part.format()) {
      fail(ErrorCode::kUnsupported, "{}: its parts are quantised differently; exclude_modules must take all or none",
           whole.name);
    }
    if (whole.experts != part.experts) {
      fail(ErrorCode::kInternal, "{}: its parts have {} and {} experts", whole.name, whole.experts, part.experts);
    }
    if (whole.kind == EngineTensorKind::kVector) {
      whole.cols += part.cols;
    } else {
      whole.rows += part.rows;
    }
  }

  int32_t first_layer_;
  std::map<std::pair<int32_t, WeightSlot>, size_t> index_;  // by global layer id and slot
  EngineLayout layout_;
};
}  // namespace

int64_t vocabularyShare(const ModelConfig& config) {
  const int32_t tp = config.mapping.tp_size;
  return (config.vocab_size + tp - 1) / tp;
}

TiedHead tiedHead(const ModelConfig& config, int32_t rank) {
  const int64_t share = vocabularyShare(config);
  // A table that is cut along the vocabulary already is this rank's share, with zeros as padding.
  if (config.use_parallel_embedding) return {0, share};
  const int64_t begin = std::min(config.mapping.tpRank(rank) * share, config.vocab_size);
  return {begin, std::min(share, config.vocab_size - begin)};
}

EngineLayout engineLayout(const std::vector<RankTensor>& tensors, const ModelConfig& config, int32_t rank) {
  LayoutBuilder builder(stageLayers(config.num_hidden_layers, config.mapping, config.mapping.ppRank(rank)).begin);
  for (const RankTensor& tensor : tensors) builder.add(tensor);
  EngineLayout layout = builder.finish();
  if (!sharesEmbedding(config)) return layout;
  // A model with a shared embedding has one pipeline stage, so every rank has the embedding.
  const auto embedding = std::find_if(tensors.begin(), tensors.end(), [](const RankTensor& tensor) {
    return tensor.row->slot == slotOf(TableId::kTokens);
  });
  if (embedding != tensors.end()) addTiedHead(*embedding, config, rank, layout);
  return layout;
}

uint64_t packedWeightBytes(const WeightTable& table, const ModelConfig& config, int32_t rank,
                           const WeightPacker& packer) {
  const std::vector<RankTensor> tensors = rankTensors(table, config, rank);
  uint64_t bytes = 0;
  for (const EngineTensor& tensor : engineLayout(tensors, config, rank).tensors) {
    bytes = checkedAdd(bytes, tensorBytes(tensor, packer), "the engine");
  }
  return bytes;
}

}  // namespace chorus
