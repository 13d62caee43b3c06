#include "runtime/decoding/word_automaton.h"

#include <numeric>

namespace chorus {

WordAutomaton::WordAutomaton(std::span<const std::span<const int32_t>> words) {
  std::vector<uint32_t> order(words.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::lexicographical_compare(words[a].begin(), words[a].end(), words[b].begin(), words[b].end());
  });
  for (const auto& word : words) longest_ = std::max(longest_, word.size());

  // One range in `order` per node: the words that begin with it. Words that end there come first.
  struct Range {
    size_t begin, end, length;
  };
  std::vector<Range> ranges = {{0, order.size(), 0}};
  nodes_.emplace_back();
  for (State node = 0; node < ranges.size(); ++node) {
    auto [at, end, length] = ranges[node];
    nodes_[node].words = static_cast<uint32_t>(words_.size());
    for (; at < end && words[order[at]].size() == length; ++at) words_.push_back(order[at]);
    nodes_[node].children = static_cast<State>(nodes_.size());
    while (at < end) {
      const size_t begin = at;
      const int32_t token = words[order[at]][length];
      while (at < end && words[order[at]][length] == token) ++at;
      nodes_.emplace_back().token = token;
      ranges.push_back({begin, at, length + 1});
    }
  }
  Node& last = nodes_.emplace_back();
  last.children = static_cast<State>(ranges.size());
  last.words = static_cast<uint32_t>(words_.size());

  // In order of length, because next() goes from a node to shorter ones.
  for (State node = 0; node < ranges.size(); ++node) {
    if (nodes_[node].words < nodes_[node + 1].words) {
      nodes_[node].ended = node;
    } else if (node != kStart) {
      nodes_[node].ended = nodes_[nodes_[node].shorter].ended;
    }
    for (State child = nodes_[node].children; child < nodes_[node + 1].children; ++child) {
      nodes_[child].shorter = node == kStart ? kStart : next(nodes_[node].shorter, nodes_[child].token);
    }
  }
}

}  // namespace chorus
