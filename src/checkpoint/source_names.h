// The names of the tensors that a weight table takes from files of one format.
//
// They are computed when they are needed, not listed: a config of a few bytes can name 2^20 experts that no file holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_table.h"

namespace chorus {

class SourceNames {
 public:
  // A source of a row for one layer and one expert.
  struct Tensor {
    const WeightRow* row = nullptr;
    const WeightSource* source = nullptr;
    int32_t layer = 0;   // global id; 0 for a row outside the layers
    bool is_new = true;  // false: an earlier source of the table takes its rows from the same tensor
  };
  // Returns whether to continue.
  using Visit = std::function<bool(const Tensor& tensor, const std::string& name)>;

  // num_layers: of the model. The table must outlive this object.
  SourceNames(const WeightTable& table, int32_t num_layers, SourceFormat format);

  // Number of different tensors.
  int64_t count() const;
  // The first source in the table's order that is the tensor of this name; nullopt if there is none.
  std::optional<Tensor> find(std::string_view name) const;
  // Visits all sources, in the order of the table.
  void forEach(const Visit& visit) const;
  // Visits the sources of the rows that every layer has, for this layer.
  void forEachOfLayer(int32_t layer, const Visit& visit) const;
  // Visits the sources of the rows of a stage outside the layers.
  void forEachOfStage(Stage stage, const Visit& visit) const;

 private:
  struct Entry {
    const WeightRow* row;
    const WeightSource* source;
    bool is_new;

    bool isInLayers() const { return row->stage == Stage::kEveryLayer; }
    int64_t experts() const { return namesExpert(source->name) ? row->experts : 1; }
  };

  bool isInLayer(const Entry& entry, int64_t layer) const;
  // Visits the tensors of all experts; returns false if a visit did.
  static bool visitLayer(const Entry& entry, int32_t layer, const Visit& visit);

  int32_t num_layers_;
  std::vector<Entry> entries_;
};

}  // namespace chorus
