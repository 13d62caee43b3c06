// What a PEFT adapter holds beside low-rank parts: values that stand for the base's own.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_file.h"
#include "lora/adapter_builder.h"
#include "lora/peft_config.h"
#include "lora/peft_keys.h"
#include "lora/peft_reader.h"

namespace chorus {

// How the base model's files name the two modules outside layers that adapters may have.
struct BaseNames {
  std::string embedding;  // "model.embed_tokens"
  std::string head;       // "lm_head"
  // Transforms of the two modules' sources.
  SourceTransform embedding_transform, head_transform;

  BaseNames(const ModelConfig& config, const WeightTable& table);
  // With or without "model." before it.
  bool isEmbedding(std::string_view module) const;
  bool isHead(std::string_view module) const;
};

// A tensor of the file, with the checks that all have in common: its shape, its type, finite values. Throws
// Error(kCorrupt) that names it, and hint with a wrong shape.
const TensorView& checkedTensor(const TensorFile& weights, const std::string& name, const std::vector<int64_t>& shape,
                                std::string_view hint);

// Rows of a source's tensor that are one part of it, as a tensor of `count` rows.
TensorView sourceRows(const TensorView& tensor, const SourceRows& rows, int64_t count, AdapterBuilder& builder);
// The rows that `source` takes from a tensor of the base model's files, with its transform applied.
TensorView sourceValues(const TensorView& tensor, const WeightSource& source, AdapterBuilder& builder);

// modules_to_save, biases, an embedding or output head that was saved with the adapter (PEFT does it where their
// vocabulary grew and where an adapter is on them), and trainable_token_indices.
class PeftReplacements {
 public:
  // All must outlive this.
  PeftReplacements(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
                   const AdapterTarget& target);

  // Takes a tensor of PeftPart kBase or kTokens; false when the model has nothing of that name.
  bool collect(const std::string& name, const PeftKey& key);
  bool empty() const { return rows_.empty() && embedding_.empty() && head_.empty() && tokens_.empty(); }
  // After all tensors were collected. adapted: modules that have low-rank parts, those outside layers by BaseNames.
  void read(const std::set<std::string>& adapted, AdapterBuilder& builder);

  // After read: tokens that the adapter takes, and that its logits are of.
  int64_t inputVocabulary() const { return input_vocabulary_; }
  int64_t headVocabulary() const { return head_vocabulary_; }

 private:
  struct Place {
    const WeightRow* row;
    const WeightSource* source;
    int32_t layer;
  };
  // Where a tensor of the base model's files stands in the table. Empty for the embedding and the output head.
  std::vector<Place> placesOf(const std::string& source_name) const;
  void checkAsked(const std::string& name, const PeftKey& key, bool is_bias) const;
  void checkSavedAreThere() const;
  void readRows(AdapterBuilder& builder) const;
  void readVocabulary(AdapterBuilder& builder);
  // trainable_token_indices. Null: none of the module's own.
  struct TrainedTokens {
    const PeftTokens* embedding = nullptr;
    const PeftTokens* head = nullptr;
    // The model ties the two, and the embedding's rows are the head's: unless this is named with other tokens.
    bool tied = false;
  };
  TrainedTokens trainedTokens(const std::set<std::string>& adapted) const;
  // The model's tokens and those after them that have rows of their own, up to the first that has none.
  int64_t withAdded(const PeftTokens* tokens) const;
  void readVocabularySizes(const TrainedTokens& trained, AdapterBuilder& builder);
  void readTokens(const TrainedTokens& trained, const std::set<std::string>& adapted, AdapterBuilder& builder) const;
  AdapterTokens tokenRows(const PeftTokens& tokens, const std::string& tensor, int64_t vocabulary,
                          const SourceTransform& transform) const;
  [[noreturn]] void refuse(const std::string& tensor, std::string_view reason) const;
  [[noreturn]] void refuseConfig(std::string_view field, std::string_view reason) const;

  const PeftConfig& config_;
  const TensorFile& weights_;
  std::string_view config_source_;
  const AdapterTarget& target_;
  BaseNames names_;
  std::map<std::string, std::string> rows_;    // source name -> tensor
  std::string embedding_, head_;               // tensors; empty: the base's
  std::map<std::string, std::string> tokens_;  // BaseNames -> tensor
  int64_t input_vocabulary_ = 0;
  int64_t head_vocabulary_ = 0;
};

}  // namespace chorus
