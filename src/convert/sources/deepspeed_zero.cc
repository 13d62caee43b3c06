#include "convert/sources/deepspeed_zero.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace chorus {
namespace {

int64_t elementsOf(const NamedShape& parameter) {
  const uint64_t count = checkedElementCount(parameter.shape, parameter.name.c_str());
  if (count > static_cast<uint64_t>(INT64_MAX) / 2) fail(ErrorCode::kCorrupt, "{}: size overflows", parameter.name);
  return static_cast<int64_t>(count);
}

// Flat tensors that are read as one.
class FlatVector {
 public:
  void append(const TensorView& part) {
    parts_.push_back(&part);
    ends_.push_back(size() + part.elements());
  }
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // Adds elements [begin, begin + count) as elements [first, first + count) of the tensor. What lies beyond the end is
  // left out.
  void addTo(SourceTensor& tensor, int64_t begin, int64_t count, int64_t first) const {
    const int64_t end = std::min(begin + count, size());
    auto part = static_cast<size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
    for (int64_t at = begin; at < end; ++part) {
      const int64_t part_begin = ends_[part] - parts_[part]->elements();
      const int64_t taken = std::min(end, ends_[part]) - at;
      if (taken > 0) tensor.addRange(*parts_[part], at - part_begin, taken, first + at - begin);
      at += taken;
    }
  }

 private:
  std::vector<const TensorView*> parts_;
  std::vector<int64_t> ends_;
};

int64_t partOf(int64_t elements, size_t ranks) {
  const auto count = static_cast<int64_t>(ranks);
  return elements / count + (elements % count != 0 ? 1 : 0);
}

// Adds rank r's part of a parameter that is cut into equal parts.
void addPart(SourceTensor& tensor, int64_t elements, size_t ranks, size_t rank, const FlatVector& values,
             int64_t begin) {
  const int64_t part = partOf(elements, ranks);
  const int64_t first = std::min(elements, part * static_cast<int64_t>(rank));
  values.addTo(tensor, begin, std::min(part, elements - first), first);
}

void checkGroups(std::span<const std::vector<NamedShape>> shapes, const DeepSpeedStates& optimizer,
                 std::string_view where) {
  if (optimizer.partitions.size() != shapes.size()) {
    fail(ErrorCode::kCorrupt, "{}: the optimizer has {} groups of parameters, the model has {}", where,
         optimizer.partitions.size(), shapes.size());
  }
}
}  // namespace

void joinZero2(std::span<const std::vector<NamedShape>> shapes, std::span<const DeepSpeedStates> optimizers,
               std::string_view where, const AddSourceTensor& add) {
  for (const DeepSpeedStates& optimizer : optimizers) checkGroups(shapes, optimizer, where);
  for (size_t group = 0; group < shapes.size(); ++group) {
    FlatVector values;
    for (const DeepSpeedStates& optimizer : optimizers) values.append(optimizer.partitions[group]);
    int64_t at = 0;
    for (const NamedShape& parameter : shapes[group]) {
      const int64_t count = elementsOf(parameter);
      if (count > values.size() - at) {
        fail(ErrorCode::kCorrupt, "{}: the partitions of group {} end before parameter '{}' does", where, group,
             parameter.name);
      }
      SourceTensor tensor(parameter.shape);
      values.addTo(tensor, at, count, 0);
      tensor.finish(parameter.name);
      add(parameter.name, std::move(tensor));
      at += count;
    }
    // Partitions are aligned, which adds less than this many elements in all.
    const auto align = static_cast<int64_t>(2 * optimizers.size());
    if (partOf(values.size(), 2 * optimizers.size()) != partOf(at, 2 * optimizers.size())) {
      fail(ErrorCode::kCorrupt, "{}: group {} has {} elements, and its parameters have {}, aligned to {}", where, group,
           values.size(), at, align);
    }
  }
}

void joinZero3(std::span<const std::vector<NamedShape>> shapes, std::span<const DeepSpeedStates> optimizers,
               std::string_view where, const AddSourceTensor& add) {
  std::vector<FlatVector> values(optimizers.size());
  for (size_t rank = 0; rank < optimizers.size(); ++rank) {
    for (const TensorView& partition : optimizers[rank].partitions) values[rank].append(partition);
    if (values[rank].size() != values[0].size()) {
      fail(ErrorCode::kCorrupt, "{}: rank {} has {} elements of the parameters, rank 0 has {}", where, rank,
           values[rank].size(), values[0].size());
    }
  }
  int64_t at = 0;
  for (const auto& group : shapes) {
    for (const NamedShape& parameter : group) {
      const int64_t count = elementsOf(parameter), part = partOf(count, optimizers.size());
      if (part > values[0].size() - at) {
        fail(ErrorCode::kCorrupt, "{}: the partitions end before parameter '{}' does", where, parameter.name);
      }
      SourceTensor tensor(parameter.shape);
      for (size_t rank = 0; rank < values.size(); ++rank) {
        addPart(tensor, count, optimizers.size(), rank, values[rank], at);
      }
      tensor.finish(parameter.name);
      add(parameter.name, std::move(tensor));
      at += part;
    }
  }
  if (at != values[0].size()) {
    fail(ErrorCode::kCorrupt, "{}: the parameters take {} elements of each rank, which has {}", where, at,
         values[0].size());
  }
}

void joinFrozenZero3(std::span<const DeepSpeedStates> models, std::string_view where, const AddSourceTensor& add) {
  std::vector<std::map<std::string_view, const TensorView*>> fragments(models.size());
  for (size_t rank = 0; rank < models.size(); ++rank) {
    for (const auto& [name, fragment] : models[rank].frozen_fragments) fragments[rank].emplace(name, &fragment);
  }
  for (const NamedShape& parameter : models[0].frozen_shapes) {
    SourceTensor tensor(parameter.shape);
    for (size_t rank = 0; rank < models.size(); ++rank) {
      const auto found = fragments[rank].find(parameter.name);
      if (found == fragments[rank].end()) {
        fail(ErrorCode::kCorrupt, "{}: rank {} has no part of the frozen parameter '{}'", where, rank, parameter.name);
      }
      FlatVector values;
      values.append(*found->second);
      addPart(tensor, elementsOf(parameter), models.size(), rank, values, 0);
    }
    tensor.finish(parameter.name);
    add(parameter.name, std::move(tensor));
  }
}

}  // namespace chorus
