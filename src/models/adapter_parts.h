// An adapter in the form that the ops take: packed, in device memory, by layer and slot.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/weight_slot.h"
#include "kernels/backend.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "models/model_weights.h"

namespace chorus {

// The changes that an adapter makes to one linear: the LoRA terms in the order in which they are applied and, if
// `weight` has data, a weight that replaces the base's.
struct AdapterLinear {
  std::vector<LoraTerm> parts;  // of a linear with experts: in the order of the experts
  // Only for a linear with experts: the terms of expert e are parts [expert_begin[e], expert_begin[e + 1]). Empty if
  // the linear has no experts or the adapter has no terms.
  std::vector<int32_t> expert_begin;
  PackedWeight weight;
  bool empty() const { return parts.empty() && weight.data == nullptr; }
  ExpertTerms experts() const { return {parts, expert_begin}; }
};

// The changes that an adapter makes to the token embedding. The members have the meaning of EmbeddingGroup's.
struct AdapterEmbedding {
  EmbeddingTable table;
  const int32_t* replaced_tokens = nullptr;
  const float* replaced_rows = nullptr;
  int64_t replaced = 0;
  std::vector<EmbeddingPart> parts;
  bool empty() const { return table.data == nullptr && replaced == 0 && parts.empty(); }
};

// One rank's share of an adapter. Immutable once it is complete. Its pointers refer to memory that it owns or that an
// object passed to keep() owns.
class AdapterParts {
 public:
  // layers: number of layers of this rank's pipeline stage. Layer ids are local to the stage.
  explicit AdapterParts(int32_t layers) : slots_(static_cast<size_t>(layers) + 1) {}
  ~AdapterParts() {
    for (Owned& owned : memory_) {
      if (owned.recycle) owned.recycle(std::move(owned.memory));
    }
  }
  AdapterParts(const AdapterParts&) = delete;
  AdapterParts& operator=(const AdapterParts&) = delete;
  int32_t layers() const { return static_cast<int32_t>(slots_.size()) - 1; }
  // at() and norm() return what the adapter has for a slot of a layer, or of kOutsideLayers. They throw
  // std::out_of_range for any other layer.
  //
  // The output features of the output head (LinearId::kHead, on the last stage) are this rank's share of the model's
  // vocabulary (vocabularyShare(), with its padding), followed by all tokens that the adapter adds. Every
  // tensor-parallel rank computes all added tokens. A head weight of an adapter that adds tokens therefore has
  // vocabularyShare() + vocabSize() - (tokens of the model's vocabulary) outputs.
  const AdapterLinear& at(int32_t layer, LinearId linear) const {
    return slots_.at(indexOf(layer)).linears[static_cast<size_t>(linear)];
  }
  // The norm's weight and bias; null where the adapter uses the base's.
  const NormWeights& norm(int32_t layer, NormId norm) const {
    return slots_.at(indexOf(layer)).norms[static_cast<size_t>(norm)];
  }
  // Used on the first stage only.
  const AdapterEmbedding& embedding() const { return embedding_; }
  // vocabSize() is the number of tokens that have logits, and inputVocabSize() the number of tokens that the embedding
  // accepts. 0 means the same number as the model's; other values are never smaller than that. Equal on all ranks.
  int64_t vocabSize() const { return vocab_size_; }
  int64_t inputVocabSize() const { return input_vocab_size_; }

  void add(int32_t layer, LinearId linear, const LoraTerm& part) { mutableAt(layer, linear).parts.push_back(part); }
  // Adds a term to one expert of a linear with `experts` experts, after the terms that the expert has. Fast if the
  // experts come in order: the terms of later experts are moved.
  void addToExpert(int32_t layer, LinearId linear, int64_t experts, int64_t expert, const LoraTerm& part) {
    AdapterLinear& own = mutableAt(layer, linear);
    own.expert_begin.resize(static_cast<size_t>(experts) + 1);
    const auto end = own.expert_begin.begin() + expert + 1;
    own.parts.insert(own.parts.begin() + *end, part);
    std::for_each(end, own.expert_begin.end(), [](int32_t& begin) { ++begin; });
  }
  void addWeight(int32_t layer, LinearId linear, const PackedWeight& weight) {
    mutableAt(layer, linear).weight = weight;
  }
  // Sets the weight and the bias that are not null.
  void addNorm(int32_t layer, NormId norm, const NormWeights& added) {
    NormWeights& own = slots_[indexOf(layer)].norms[static_cast<size_t>(norm)];
    own.size = added.size;
    if (added.weight != nullptr) own.weight = added.weight;
    if (added.bias != nullptr) own.bias = added.bias;
  }
  void addEmbedding(const AdapterEmbedding& embedding) { embedding_ = embedding; }
  void addVocabulary(int64_t logits, int64_t input) {
    vocab_size_ = logits;
    input_vocab_size_ = input;
  }
  // own() takes device memory of which `bytes` bytes are used. If recycle is set, the destructor passes the memory to
  // it, on whichever thread it runs.
  using Recycle = std::function<void(DeviceBuffer memory)>;
  void own(DeviceBuffer memory, size_t bytes, Recycle recycle = nullptr) {
    memory_.push_back({std::move(memory), bytes, std::move(recycle)});
  }
  // Keeps another adapter's parts alive, because this object points to their memory.
  void keep(std::shared_ptr<const AdapterParts> other) { kept_.push_back(std::move(other)); }
  // Used bytes of the memory that this object owns.
  size_t bytes() const {
    size_t total = 0;
    for (const Owned& owned : memory_) total += owned.bytes;
    return total;
  }

 private:
  struct Slots {
    std::array<AdapterLinear, kNumLinears> linears;
    std::array<NormWeights, kNumNorms> norms;
  };
  struct Owned {
    DeviceBuffer memory;
    size_t bytes;
    Recycle recycle;
  };
  static size_t indexOf(int32_t layer) { return static_cast<size_t>(layer - kOutsideLayers); }
  AdapterLinear& mutableAt(int32_t layer, LinearId linear) {
    return slots_[indexOf(layer)].linears[static_cast<size_t>(linear)];
  }

  std::vector<Slots> slots_;  // slots outside layers, then the slots of every layer
  AdapterEmbedding embedding_;
  int64_t vocab_size_ = 0;
  int64_t input_vocab_size_ = 0;
  std::vector<Owned> memory_;
  std::vector<std::shared_ptr<const AdapterParts>> kept_;
};

}  // namespace chorus
