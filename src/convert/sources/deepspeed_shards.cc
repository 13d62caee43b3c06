#include "convert/sources/deepspeed_shards.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"

namespace chorus {
namespace {

// Whether `name` is `end` or ends with "." and `end`.
bool endsWithName(std::string_view name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  return name.size() == end.size() || name[name.size() - end.size() - 1] == '.';
}

// Returns the common prefix of the names of a decoder layer's tensors, up to and including the layer's id.
std::string layerPrefix(std::span<const ExpectedTensor> expected, int32_t layer) {
  std::optional<std::string> common;
  for (const ExpectedTensor& tensor : expected) {
    if (tensor.stage != Stage::kEveryLayer || tensor.layer != layer) continue;
    if (!common) {
      common = tensor.name;
      continue;
    }
    const auto differ = std::ranges::mismatch(*common, tensor.name).in1;
    common->erase(differ, common->end());
  }
  if (!common) return "";
  return common->substr(0, common->find("." + std::to_string(layer) + ".") + std::to_string(layer).size() + 2);
}

class PipelineReader {
 public:
  PipelineReader(std::span<const ExpectedTensor> expected, bool tied, std::string_view where,
                 const std::function<void(const std::string&, SourceTensor)>& add)
      : expected_(expected), tied_(tied), where_(where), add_(add), used_(expected.size()) {}

  void read(const std::map<int32_t, PipelineLayer>& layers) {
    int32_t last = -1;  // of the pipeline's layers that are decoder layers
    for (const auto& [id, layer] : layers) {
      if (prefixIfDecoder(layer)) last = id;
    }
    for (const auto& [id, layer] : layers) {
      if (const auto prefix = prefixIfDecoder(layer)) {
        readDecoder(id, layer, *prefix);
      } else {
        readOther(id, layer, id < last ? Stage::kFirst : Stage::kLast);
      }
    }
  }

 private:
  [[noreturn]] void unused(int32_t id, const std::string& name, const std::vector<const TensorView*>& shards) const {
    fail(ErrorCode::kCorrupt,
         "{}: tensor '{}' of shape {} in layer {} of the pipeline is none that the model has there", where_, name,
         shapeText(shards[0]->shape), id);
  }

  // The prefix of the names in the layer if it is the decoder layer `next_`.
  std::optional<std::string> prefixIfDecoder(const PipelineLayer& layer) const {
    const std::string model_prefix = layerPrefix(expected_, 0);
    std::optional<std::string> prefix;
    for (const ExpectedTensor& tensor : expected_) {
      if (tensor.stage != Stage::kEveryLayer || tensor.layer != 0) continue;
      const std::string_view end = std::string_view(tensor.name).substr(model_prefix.size());
      const auto found = std::ranges::find_if(layer, [&](const auto& item) { return endsWithName(item.first, end); });
      if (found == layer.end()) return std::nullopt;
      const std::string before = found->first.substr(0, found->first.size() - end.size());
      if (prefix && *prefix != before) return std::nullopt;
      prefix = before;
    }
    return prefix;
  }

  void readDecoder(int32_t id, const PipelineLayer& layer, const std::string& prefix) {
    const std::string model_prefix = layerPrefix(expected_, next_);
    for (const auto& [name, shards] : layer) {
      const std::string whole = model_prefix + (name.starts_with(prefix) ? name.substr(prefix.size()) : name);
      const auto found =
          std::ranges::find_if(expected_, [&](const ExpectedTensor& tensor) { return tensor.name == whole; });
      if (found == expected_.end()) {
        // A buffer, or a layer beyond those of the config: whoever checks the model's tensors names it.
        add_(whole, SourceTensor(*shards[0]));
        continue;
      }
      use(static_cast<size_t>(found - expected_.begin()), shards);
    }
    static_cast<void>(id);
    ++next_;
  }

  void readOther(int32_t id, const PipelineLayer& layer, Stage stage) {
    for (const auto& [name, shards] : layer) {
      std::optional<size_t> match;
      for (size_t i = 0; i < expected_.size() && !match; ++i) {
        const ExpectedTensor& tensor = expected_[i];
        const bool named = endsWithName(tensor.name, name) || endsWithName(name, tensor.name);
        if (tensor.stage == stage && !used_[i] && named && fits(shards, tensor)) match = i;
      }
      if (match) {
        use(*match, shards);
      } else if (!isSecondEmbedding(stage, shards)) {
        unused(id, name, shards);
      }
    }
  }

  // Whether shards of these shapes could be the tensor.
  static bool fits(const std::vector<const TensorView*>& shards, const ExpectedTensor& tensor) {
    const std::vector<int64_t>& shape = shards[0]->shape;
    if (shape.size() != tensor.shape.size()) return false;
    size_t differing = 0;
    for (size_t i = 0; i < shape.size(); ++i) differing += shape[i] != tensor.shape[i] ? 1 : 0;
    return differing == 0 || (differing == 1 && shards.size() > 1);
  }

  bool isSecondEmbedding(Stage stage, const std::vector<const TensorView*>& shards) const {
    return tied_ && stage == Stage::kLast && !expected_.empty() && fits(shards, expected_.front());
  }

  void use(size_t index, const std::vector<const TensorView*>& shards) {
    used_[index] = true;
    add_(expected_[index].name, joinShards(shards, expected_[index], where_));
  }

  std::span<const ExpectedTensor> expected_;
  bool tied_;
  std::string_view where_;
  const std::function<void(const std::string&, SourceTensor)>& add_;
  std::vector<bool> used_;
  int32_t next_ = 0;  // decoder layer
};
}  // namespace

std::vector<ExpectedTensor> expectedTensors(const WeightTable& table, const ModelConfig& config) {
  std::vector<ExpectedTensor> result;
  std::set<std::string> seen;
  for (const WeightRow& row : table) {
    const int32_t layers = row.stage == Stage::kEveryLayer ? config.num_hidden_layers : 1;
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (!row.isInLayer(layer)) continue;
      for (const WeightSource* source : sourcesOf(row, SourceFormat::kHuggingFace)) {
        const std::string name = layerName(source->name, layer);
        const int64_t names = namesExpert(name) ? row.experts : 1;
        for (int64_t expert = 0; expert < names; ++expert) {
          ExpectedTensor tensor = {.name = expertName(name, expert),
                                   .shape = sourceShape(row, *source),
                                   .stage = row.stage,
                                   .layer = layer,
                                   .fused = source->in_source.total > 0};
          if (seen.insert(tensor.name).second) result.push_back(std::move(tensor));
        }
      }
    }
  }
  return result;
}

SourceTensor joinShards(std::span<const TensorView* const> shards, const ExpectedTensor& expected,
                        std::string_view where) {
  const TensorView& first = *shards[0];
  if (shards.size() == 1 || first.shape == expected.shape) return SourceTensor(first);
  const auto mismatch = [&] {
    std::string shapes;
    for (const TensorView* shard : shards) shapes += (shapes.empty() ? "" : ", ") + shapeText(shard->shape);
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}, and its tensor-parallel parts have {}", where,
         expected.name, shapeText(expected.shape), shapes);
  };
  if (expected.fused) {
    fail(
        ErrorCode::kUnsupported,
        "{}: tensor '{}' joins several linears and is cut over {} tensor-parallel ranks, in an order that the files do "
        "not tell; save the model with DeepSpeed's 16-bit gathering (save_16bit_model)",
        where, expected.name, shards.size());
  }
  if (expected.shape.empty() || expected.shape.size() > 2) mismatch();
  const bool by_rows = first.shape.size() == expected.shape.size() && first.shape[0] != expected.shape[0];
  SourceTensor joined(expected.shape);
  int64_t at = 0;
  for (const TensorView* shard : shards) {
    if (shard->shape.size() != expected.shape.size()) mismatch();
    const int64_t extent = by_rows ? shard->shape[0] : shard->shape.back();
    const int64_t whole = by_rows ? expected.shape[0] : expected.shape.back();
    const bool other_fits = expected.shape.size() == 1 ||
                            (by_rows ? shard->shape[1] == expected.shape[1] : shard->shape[0] == expected.shape[0]);
    if (!other_fits || extent > whole - at) mismatch();
    joined.addWhole(*shard, by_rows ? at : 0, by_rows ? 0 : at);
    at += extent;
  }
  joined.finish(expected.name);
  return joined;
}

void readPipeline(const std::map<int32_t, PipelineLayer>& layers, std::span<const ExpectedTensor> expected, bool tied,
                  std::string_view where, const std::function<void(const std::string&, SourceTensor)>& add) {
  PipelineReader(expected, tied, where, add).read(layers);
}

}  // namespace chorus
