#include "formats/deepspeed_states.h"

#include <algorithm>

#include "base/error.h"
#include "formats/torch_contents.h"

namespace chorus {
namespace {

class StatesReader {
 public:
  StatesReader(std::span<const std::byte> bytes, std::string_view source)
      : source_(source),
        contents_(readTorchContents(bytes, source, OtherClasses::kOpaque)),
        views_(bytes.size(), {}, source) {}

  DeepSpeedStates read() {
    if (!contents_.pickle.root.isDict()) {
      fail(ErrorCode::kCorrupt, "{}: not a file of a DeepSpeed checkpoint: it has no dictionary", source_);
    }
    for (const auto& [name, value] : namedItems(heap(), contents_.pickle.root)) {
      if (value.is(PickleKind::kNone)) continue;
      if (name == "module") states_.module = tensors(name, value);
      if (name == "buffer_names") readBufferNames(value);
      if (name == "param_shapes") readParamShapes(value);
      if (name == "frozen_param_shapes") states_.frozen_shapes = shapes(name, value);
      if (name == "frozen_param_fragments") states_.frozen_fragments = tensors(name, value);
      if (name == "shared_params") readSharedParams(value);
      if (name == "optimizer_state_dict") readOptimizer(value);
    }
    states_.copies = views_.copies();
    return std::move(states_);
  }

 private:
  const PickleHeap& heap() const { return contents_.pickle.heap; }

  [[noreturn]] void corrupt(std::string_view field, std::string_view expected) const {
    fail(ErrorCode::kCorrupt, "{}: '{}' is not {}", source_, field, expected);
  }

  // Values of a list or of a tuple.
  std::span<const PickleValue> items(std::string_view field, const PickleValue& value) const {
    if (value.is(PickleKind::kTuple)) return heap().tuple(value);
    if (!value.is(PickleKind::kList)) corrupt(field, "a list");
    return heap().items(value);
  }

  // The tensors of a dictionary. Its other values are skipped.
  DeepSpeedStates::NamedTensors tensors(std::string_view field, const PickleValue& value) {
    if (!value.isDict()) corrupt(field, "a dictionary");
    DeepSpeedStates::NamedTensors result;
    for (const auto& [name, item] : namedItems(heap(), value)) {
      const TorchTensor* tensor = contents_.objects.tensor(item);
      if (tensor != nullptr) result.emplace_back(name, views_.view(contents_, *tensor, name));
    }
    return result;
  }

  std::vector<NamedShape> shapes(std::string_view field, const PickleValue& value) const {
    if (!value.isDict()) corrupt(field, "a dictionary");
    std::vector<NamedShape> result;
    for (const auto& [name, item] : namedItems(heap(), value)) {
      NamedShape& shape = result.emplace_back(NamedShape{std::string(name), {}});
      const auto extents = items(field, item);
      if (extents.size() > kMaxTensorRank) corrupt(field, "a dictionary of shapes");
      for (const PickleValue& extent : extents) {
        if (!extent.is(PickleKind::kInt) || extent.integer < 0) corrupt(field, "a dictionary of shapes");
        shape.shape.push_back(extent.integer);
      }
    }
    return result;
  }

  void readBufferNames(const PickleValue& value) {
    for (const PickleValue& name : items("buffer_names", value)) {
      if (!name.is(PickleKind::kText)) corrupt("buffer_names", "a list of names");
      states_.buffer_names.emplace_back(heap().text(name));
    }
  }

  void readParamShapes(const PickleValue& value) {
    // A pickle may name one dictionary of shapes any number of times.
    constexpr size_t kMost = 200'000;
    size_t count = 0;
    for (const PickleValue& group : items("param_shapes", value)) {
      states_.param_shapes.push_back(shapes("param_shapes", group));
      count += states_.param_shapes.back().size() + 1;
      if (count > kMost) corrupt("param_shapes", fmt::format("a list of at most {} shapes", kMost));
    }
  }

  void readSharedParams(const PickleValue& value) {
    if (!value.isDict()) corrupt("shared_params", "a dictionary");
    for (const auto& [name, item] : namedItems(heap(), value)) {
      if (!item.is(PickleKind::kText)) corrupt("shared_params", "a dictionary of names");
      states_.shared_params.emplace_back(name, heap().text(item));
    }
  }

  // The number, or the greatest one of a list: experts may be cut over fewer ranks than the other parameters.
  int64_t greatest(std::string_view field, const PickleValue& value) const {
    int64_t result = 0;
    const std::span<const PickleValue> numbers =
        value.is(PickleKind::kInt) ? std::span(&value, 1) : items(field, value);
    for (const PickleValue& number : numbers) {
      if (!number.is(PickleKind::kInt) || number.integer < 0) corrupt(field, "a count or a list of counts");
      result = std::max(result, number.integer);
    }
    return result;
  }

  // The value is absent, null or of another kind in checkpoints without ZeRO, and in those of other optimizers.
  void readOptimizer(const PickleValue& value) {
    if (!value.isDict()) return;
    for (const auto& [name, item] : namedItems(heap(), value)) {
      if (name == "zero_stage") {
        if (!item.is(PickleKind::kInt)) corrupt(name, "a number");
        states_.zero_stage = item.integer;
      }
      if (name == "partition_count") states_.partition_count = greatest(name, item);
      if (name == "single_partition_of_fp32_groups" || name == "fp32_flat_groups") readPartitions(name, item);
    }
  }

  void readPartitions(std::string_view field, const PickleValue& value) {
    states_.partitions.clear();
    for (const PickleValue& group : items(field, value)) {
      const TorchTensor* tensor = contents_.objects.tensor(group);
      if (tensor == nullptr || tensor->shape.size() != 1) corrupt(field, "a list of flat tensors");
      states_.partitions.push_back(views_.view(contents_, *tensor, field));
    }
  }

  std::string_view source_;
  TorchContents contents_;
  TorchViews views_;
  DeepSpeedStates states_;
};
}  // namespace

DeepSpeedStates parseDeepSpeedStates(std::span<const std::byte> bytes, std::string_view source) {
  return StatesReader(bytes, source).read();
}

}  // namespace chorus
