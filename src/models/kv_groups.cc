#include "models/kv_groups.h"

#include <algorithm>
#include <functional>
#include <map>

namespace chorus {
namespace {

// Every step builds and reads one block table per group and sequence.
constexpr int64_t kMostGroups = 8;

// Layers by window, those without one first, then the widest window first.
struct WidestFirst {
  bool operator()(int64_t a, int64_t b) const { return a != b && (a == 0 || (b != 0 && a > b)); }
};
using LayersByWindow = std::map<int64_t, std::vector<int32_t>, WidestFirst>;

int64_t groupsOf(const std::vector<int32_t>& layers, int64_t size) {
  return (static_cast<int64_t>(layers.size()) + size - 1) / size;
}

// The number of layers per group for which a sequence of max_seq_len tokens needs the least memory.
int64_t bestSize(const LayersByWindow& classes, int64_t max_seq_len) {
  int64_t most_layers = 0;
  for (const auto& [_, layers] : classes) most_layers = std::max(most_layers, std::ssize(layers));
  const int64_t most_groups = std::max<int64_t>(kMostGroups, std::ssize(classes));
  int64_t best = most_layers, least = 0;
  for (int64_t size = most_layers; size > 0; --size) {
    int64_t groups = 0, positions = 0;
    for (const auto& [window, layers] : classes) {
      groups += groupsOf(layers, size);
      positions += groupsOf(layers, size) * (window == 0 ? max_seq_len : window);
    }
    if (groups > most_groups) break;
    if (least > 0 && positions * size >= least) continue;
    least = positions * size;
    best = size;
  }
  return best;
}
}  // namespace

std::vector<KvGroup> kvGroups(const ModelSpec& spec, int64_t max_seq_len) {
  LayersByWindow classes;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const int64_t window = spec.layers[i].attention.window;
    classes[window < max_seq_len ? window : 0].push_back(static_cast<int32_t>(i));
  }
  const int64_t size = bestSize(classes, max_seq_len);
  std::vector<KvGroup> groups;
  for (const auto& [window, layers] : classes) {
    // Neighbouring layers are in different groups, so that every pipeline stage has about the same share of each.
    const auto first = std::ssize(groups);
    groups.resize(groups.size() + static_cast<size_t>(groupsOf(layers, size)), {window, {}});
    for (int64_t i = 0; i < std::ssize(layers); ++i) {
      const int64_t group = first + i % groupsOf(layers, size);
      groups[static_cast<size_t>(group)].layers.push_back(layers[static_cast<size_t>(i)]);
    }
  }
  return groups;
}

}  // namespace chorus
