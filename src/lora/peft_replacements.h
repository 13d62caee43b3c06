// Reads the values of a PEFT adapter that replace the base's, which it may have in addition to low-rank matrices.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/tensor_file.h"
#include "lora/adapter_builder.h"
#include "lora/peft_config.h"
#include "lora/peft_keys.h"
#include "lora/peft_reader.h"

namespace chorus {

// The names of the embedding and the output head in the base model's files. Outside layers, adapters may have only
// these two modules.
struct BaseNames {
  std::string embedding;  // "model.embed_tokens"
  std::string head;       // "lm_head"
  // Transforms of the two modules' sources.
  SourceTransform embedding_transform, head_transform;

  BaseNames(const ModelConfig& config, const WeightTable& table);
  // isEmbedding() and isHead() also accept other spellings of the names (areSpellings), and compare them
  // withoutModelNames().
  bool isEmbedding(std::string_view module) const;
  bool isHead(std::string_view module) const;
};

// The `count` rows that `rows` selects from a source's tensor.
TensorView sourceRows(const TensorView& tensor, const SourceRows& rows, int64_t count, AdapterBuilder& builder);
// The rows that `source` takes from a tensor of the base model's files, with the source's transform applied.
TensorView sourceValues(const TensorView& tensor, const WeightSource& source, AdapterBuilder& builder);

// Reads modules_to_save, biases, trainable_token_indices, and an embedding or output head that was saved with the
// adapter. PEFT saves these two if their vocabulary grew or if they are adapted.
class PeftReplacements {
 public:
  // All arguments must outlive this object.
  PeftReplacements(const PeftConfig& config, const TensorFile& weights, std::string_view config_source,
                   const AdapterTarget& target);

  // Takes a tensor of PeftPart kBase, kSaved or kTokens. Returns false if the model has nothing of that name.
  bool collect(const std::string& name, const PeftKey& key);
  bool empty() const {
    return rows_.empty() && embedding_.empty() && head_.empty() && head_bias_.empty() && tokens_.empty() &&
           saved_.empty();
  }
  // Adds the replacements to the builder; call it after collect() for all tensors. adapted: names of the modules that
  // have low-rank matrices; the embedding and the output head have the names of BaseNames.
  void read(const std::set<std::string>& adapted, AdapterBuilder& builder);

  // After read(): number of tokens that the input may contain, and number of tokens that have logits.
  int64_t inputVocabulary() const { return input_vocabulary_; }
  int64_t headVocabulary() const { return head_vocabulary_; }

 private:
  struct Place {
    const WeightRow* row;
    const WeightSource* source;
    int32_t layer;
  };
  bool hasHeadBias() const;
  // The places in the weight table to which a tensor of the base model's files belongs. Empty for the embedding and the
  // output head.
  std::vector<Place> placesOf(const std::string& source_name) const;
  // The variable with the name of the tensor that is read for a weight of the base model; null if the model has no such
  // weight.
  std::string* tensorFor(const PeftKey& key);
  // Takes the tensors of saved_ whose weights have no tensor of their own; the others must hold the same values.
  void takeSaved(AdapterBuilder& builder);
  void checkAsked(const std::string& name, const PeftKey& key, bool is_bias) const;
  void checkSavedAreThere() const;
  // Refuses modules_to_save of the experts that the row holds. row.experts > 0.
  void checkExpertsAreNotSaved(const WeightRow& row) const;
  void readRows(AdapterBuilder& builder) const;
  void readVocabulary(AdapterBuilder& builder);
  // The entries of trainable_token_indices; null if the module has none.
  struct TrainedTokens {
    const PeftTokens* embedding = nullptr;
    const PeftTokens* head = nullptr;
    // Whether the embedding's rows are also the head's: the model ties the two, and the head has no entry with other
    // tokens.
    bool tied = false;
  };
  TrainedTokens trainedTokens(const std::set<std::string>& adapted) const;
  // Number of tokens of the vocabulary if these rows extend the model's: the model's tokens, and the tokens after them
  // up to the first one without a row.
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
  std::string layers_;                                  // layersName()
  std::map<std::string, std::string> rows_;             // source name -> tensor
  std::string embedding_, head_, head_bias_;            // names of tensors; empty: the base's values are used
  std::map<std::string, std::string> tokens_;           // BaseNames -> tensor
  std::vector<std::pair<std::string, PeftKey>> saved_;  // tensors of PeftPart kSaved
  std::map<const std::string*, int> saved_for_;         // numbers of them by tensorFor()
  int64_t input_vocabulary_ = 0;
  int64_t head_vocabulary_ = 0;
};

}  // namespace chorus
