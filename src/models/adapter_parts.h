// An adapter in the form that ops take: packed, on the device, found by layer and slot.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weight_slot.h"
#include "kernels/backend.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"

namespace chorus {

// An adapter on one linear: parts in the order in which they are applied, and a weight instead of the base's, if it has
// data.
struct AdapterLinear {
  std::vector<LoraTerm> parts;
  PackedWeight weight;
  bool empty() const { return parts.empty() && weight.data == nullptr; }
};

// On the token embedding: as EmbeddingGroup has it.
struct AdapterEmbedding {
  EmbeddingTable table;
  const int32_t* replaced_tokens = nullptr;
  const float* replaced_rows = nullptr;
  int64_t replaced = 0;
  std::vector<EmbeddingPart> parts;
  bool empty() const { return table.data == nullptr && replaced == 0 && parts.empty(); }
};

// What one rank holds of an adapter. Immutable once made; everything it points to lives in memory that it owns or
// keeps.
class AdapterParts {
 public:
  // layers: of this rank's stage, local ids.
  explicit AdapterParts(int32_t layers) : slots_(static_cast<size_t>(layers) + 1) {}
  ~AdapterParts() {
    for (Owned& owned : memory_) {
      if (owned.recycle) owned.recycle(std::move(owned.memory));
    }
  }
  AdapterParts(const AdapterParts&) = delete;
  AdapterParts& operator=(const AdapterParts&) = delete;
  int32_t layers() const { return static_cast<int32_t>(slots_.size()) - 1; }
  // What the adapter has for a slot of a layer, or of kOutsideLayers. Throw std::out_of_range for any other layer.
  //
  // The output features of the output head (LinearId::kHead, on the last stage) are this rank's share of the model's
  // vocabulary (vocabularyShare, with its padding), and then all of the added tokens, which every tensor-parallel rank
  // computes: a weight of its own has vocabularyShare + vocabSize() - the model's vocabulary outputs, if the adapter
  // adds any.
  const AdapterLinear& at(int32_t layer, LinearId linear) const {
    return slots_.at(indexOf(layer)).linears[static_cast<size_t>(linear)];
  }
  // [hidden] float32; null: the base's.
  const float* norm(int32_t layer, NormId norm) const {
    return slots_.at(indexOf(layer)).norms[static_cast<size_t>(norm)];
  }
  // The token embedding, on the first stage.
  const AdapterEmbedding& embedding() const { return embedding_; }
  // Tokens that its logits are of, and tokens that it takes; 0: the model's. Never fewer than the model's. Equal on all
  // ranks.
  int64_t vocabSize() const { return vocab_size_; }
  int64_t inputVocabSize() const { return input_vocab_size_; }

  void add(int32_t layer, LinearId linear, const LoraTerm& part) { mutableAt(layer, linear).parts.push_back(part); }
  void addWeight(int32_t layer, LinearId linear, const PackedWeight& weight) {
    mutableAt(layer, linear).weight = weight;
  }
  void addNorm(int32_t layer, NormId norm, const float* weight) {
    slots_[indexOf(layer)].norms[static_cast<size_t>(norm)] = weight;
  }
  void addEmbedding(const AdapterEmbedding& embedding) { embedding_ = embedding; }
  void addVocabulary(int64_t logits, int64_t input) {
    vocab_size_ = logits;
    input_vocab_size_ = input;
  }
  // memory may be larger than the bytes of it that are used. recycle, if set, gets it at the end, on any thread.
  using Recycle = std::function<void(DeviceBuffer memory)>;
  void own(DeviceBuffer memory, size_t bytes, Recycle recycle = nullptr) {
    memory_.push_back({std::move(memory), bytes, std::move(recycle)});
  }
  // Another adapter's parts, whose memory these point to.
  void keep(std::shared_ptr<const AdapterParts> other) { kept_.push_back(std::move(other)); }
  // Used, of the memory that it owns.
  size_t bytes() const {
    size_t total = 0;
    for (const Owned& owned : memory_) total += owned.bytes;
    return total;
  }

 private:
  struct Slots {
    std::array<AdapterLinear, kNumLinears> linears;
    std::array<const float*, kNumNorms> norms{};
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

  std::vector<Slots> slots_;  // those outside layers, then every layer's
  AdapterEmbedding embedding_;
  int64_t vocab_size_ = 0;
  int64_t input_vocab_size_ = 0;
  std::vector<Owned> memory_;
  std::vector<std::shared_ptr<const AdapterParts>> kept_;
};

// An adapter ready for the steps of a rank group. Immutable once made; shared by all steps that use it.
struct PreparedAdapter {
  std::vector<std::shared_ptr<const AdapterParts>> ranks;  // of every rank
  size_t bytes = 0;                                        // over all of them
  int64_t elements = 0;                                    // of A and B, whole and unpadded: rank x (in + out)
  bool adapts_parameters = false;                          // as Adapter has it
  std::string content_hash;

  // As AdapterParts has them; 0: the model's.
  int64_t vocabSize() const { return ranks.empty() ? 0 : ranks.front()->vocabSize(); }
  int64_t inputVocabSize() const { return ranks.empty() ? 0 : ranks.front()->inputVocabSize(); }
};

}  // namespace chorus
