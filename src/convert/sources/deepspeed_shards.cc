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

// The beginning of the names of a decoder layer's tensors, up to and including the layer's id; empty if there are none.
std::string layerPrefix(const SourceNames& names, int32_t layer) {
  std::string prefix;
  names.forEachOfLayer(layer, [&](const SourceNames::Tensor& tensor, const std::string&) {
    const std::string& pattern = tensor.source->name;
    prefix = layerName(pattern.substr(0, pattern.find('.', pattern.find("{layer}")) + 1), layer);
    return false;
  });
  return prefix;
}

ExpectedTensor expectedOf(const SourceNames::Tensor& tensor, const std::string& name) {
  return {.name = name, .shape = sourceShape(*tensor.row, *tensor.source), .fused = tensor.source->in_source.total > 0};
}

class PipelineReader {
 public:
  PipelineReader(const SourceNames& names, bool tied, std::string_view where,
                 const std::function<void(const std::string&, SourceTensor)>& add)
      : names_(names), first_layer_(layerPrefix(names, 0)), tied_(tied), where_(where), add_(add) {
    for (const Stage stage : {Stage::kFirst, Stage::kLast}) {
      names.forEachOfStage(stage, [&](const SourceNames::Tensor& tensor, const std::string& name) {
        if (tensor.is_new) outside_.push_back({expectedOf(tensor, name), stage});
        return true;
      });
    }
  }

  void read(const std::map<int32_t, PipelineLayer>& layers) {
    std::map<int32_t, std::string> prefixes;  // of the pipeline's layers that are decoder layers
    for (const auto& [id, layer] : layers) {
      if (auto prefix = prefixIfDecoder(layer)) prefixes.emplace(id, std::move(*prefix));
    }
    const int32_t last = prefixes.empty() ? -1 : prefixes.rbegin()->first;
    for (const auto& [id, layer] : layers) {
      if (const auto prefix = prefixes.find(id); prefix != prefixes.end()) {
        readDecoder(layer, prefix->second);
      } else {
        readOther(id, layer, id < last ? Stage::kFirst : Stage::kLast);
      }
    }
  }

 private:
  // A tensor outside the decoder layers.
  struct Outside {
    ExpectedTensor tensor;
    Stage stage;
    bool used = false;
  };

  [[noreturn]] void unused(int32_t id, const std::string& name, const std::vector<const TensorView*>& shards) const {
    fail(ErrorCode::kCorrupt,
         "{}: tensor '{}' of shape {} in layer {} of the pipeline is none that the model has there", where_, name,
         shapeText(shards[0]->shape), id);
  }

  // The prefix of the names in the layer if it has all tensors of a decoder layer. They are those of the first one,
  // until one is missing.
  std::optional<std::string> prefixIfDecoder(const PipelineLayer& layer) const {
    std::set<std::string_view> found;
    for (const auto& [name, shards] : layer) found.insert(name);
    std::optional<std::string> prefix;
    bool has_all = true;
    names_.forEachOfLayer(0, [&](const SourceNames::Tensor&, const std::string& name) {
      has_all = name.starts_with(first_layer_);
      if (!has_all) return false;
      const std::string_view end = std::string_view(name).substr(first_layer_.size());
      if (prefix) {
        has_all = found.contains(std::string(*prefix).append(end));
      } else {
        const auto first = std::ranges::find_if(found, [&](std::string_view item) { return endsWithName(item, end); });
        has_all = first != found.end();
        if (has_all) prefix = first->substr(0, first->size() - end.size());
      }
      return has_all;
    });
    return has_all ? prefix : std::nullopt;
  }

  void readDecoder(const PipelineLayer& layer, const std::string& prefix) {
    const std::string model_prefix = layerPrefix(names_, next_);
    for (const auto& [name, shards] : layer) {
      const std::string whole = model_prefix + (name.starts_with(prefix) ? name.substr(prefix.size()) : name);
      if (const auto expected = expectedTensor(names_, whole)) {
        add_(whole, joinShards(shards, *expected, where_));
      } else {
        // A buffer, or a layer beyond those of the config: whoever checks the model's tensors names it.
        add_(whole, SourceTensor(*shards[0]));
      }
    }
    ++next_;
  }

  void readOther(int32_t id, const PipelineLayer& layer, Stage stage) {
    for (const auto& [name, shards] : layer) {
      const auto match = std::ranges::find_if(outside_, [&](const Outside& item) {
        const std::string& expected = item.tensor.name;
        const bool named = endsWithName(expected, name) || endsWithName(name, expected);
        return item.stage == stage && !item.used && named && fits(shards, item.tensor);
      });
      if (match != outside_.end()) {
        match->used = true;
        add_(match->tensor.name, joinShards(shards, match->tensor, where_));
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
    return tied_ && stage == Stage::kLast && !outside_.empty() && fits(shards, outside_.front().tensor);
  }

  const SourceNames& names_;
  std::string first_layer_;  // layerPrefix()
  bool tied_;
  std::string_view where_;
  const std::function<void(const std::string&, SourceTensor)>& add_;
  std::vector<Outside> outside_;  // in the order of the table, those of the first stage first
  int32_t next_ = 0;              // decoder layer
};
}  // namespace

std::optional<ExpectedTensor> expectedTensor(const SourceNames& names, const std::string& name) {
  const auto tensor = names.find(name);
  return tensor ? std::optional(expectedOf(*tensor, name)) : std::nullopt;
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

void readPipeline(const std::map<int32_t, PipelineLayer>& layers, const SourceNames& names, bool tied,
                  std::string_view where, const std::function<void(const std::string&, SourceTensor)>& add) {
  PipelineReader(names, tied, where, add).read(layers);
}

}  // namespace chorus
