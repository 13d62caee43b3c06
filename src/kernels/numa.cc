#include "kernels/numa.h"

#include <numa.h>

#include <cassert>
#include <memory>

namespace chorus {
namespace {

struct FreeMask {
  void operator()(bitmask* mask) const { numa_bitmask_free(mask); }
};
using Mask = std::unique_ptr<bitmask, FreeMask>;

int bitsOf(const bitmask& mask) { return static_cast<int>(mask.size); }
}  // namespace

std::vector<NumaNode> numaNodes() {
  if (numa_available() < 0) return {};
  const Mask memory(numa_get_mems_allowed());
  const Mask allowed(numa_allocate_cpumask()), of_node(numa_allocate_cpumask());
  if (!memory || !allowed || !of_node || numa_sched_getaffinity(0, allowed.get()) < 0) return {};
  std::vector<NumaNode> nodes;
  for (int number = 0; number <= numa_max_node(); ++number) {
    if (!numa_bitmask_isbitset(memory.get(), static_cast<unsigned>(number))) continue;
    if (numa_node_to_cpus(number, of_node.get()) < 0) continue;
    NumaNode node{.number = number, .processors = {}};
    for (int processor = 0; processor < bitsOf(*of_node); ++processor) {
      const auto bit = static_cast<unsigned>(processor);
      if (numa_bitmask_isbitset(of_node.get(), bit) && numa_bitmask_isbitset(allowed.get(), bit)) {
        node.processors.push_back(processor);
      }
    }
    if (!node.processors.empty()) nodes.push_back(std::move(node));
  }
  // Threads must not be kept away from a processor whose node has no memory for this process.
  size_t found = 0;
  for (const NumaNode& node : nodes) found += node.processors.size();
  if (nodes.size() < 2 || found != numa_bitmask_weight(allowed.get())) nodes.clear();
  return nodes;
}

std::span<const NumaNode> nodesOfPart(std::span<const NumaNode> nodes, int32_t part, int32_t parts) {
  assert(part >= 0 && part < parts);
  const auto count = static_cast<int32_t>(nodes.size());
  if (count == 0) return {};
  if (parts > count) return nodes.subspan(static_cast<size_t>(int64_t{part} * count / parts), 1);
  const auto begin = static_cast<size_t>(count * part / parts), end = static_cast<size_t>(count * (part + 1) / parts);
  return nodes.subspan(begin, end - begin);
}

bool haveProcessorsFor(std::span<const NumaNode> nodes, int32_t parts, int threads) {
  for (int32_t part = 0; part < parts; ++part) {
    const std::span<const NumaNode> own = nodesOfPart(nodes, part, parts);
    int64_t processors = 0, wanted = 0;
    for (const NumaNode& node : own) processors += std::ssize(node.processors);
    for (int32_t other = 0; other < parts; ++other) {
      if (nodesOfPart(nodes, other, parts).data() == own.data()) wanted += threads;
    }
    if (wanted > processors) return false;
  }
  return true;
}

const NumaNode& nodeOfThread(std::span<const NumaNode> nodes, int thread, int threads) {
  assert(!nodes.empty() && thread >= 0 && thread < threads);
  int64_t processors = 0;
  for (const NumaNode& node : nodes) processors += std::ssize(node.processors);
  int64_t at = thread * processors / threads;
  for (const NumaNode& node : nodes) {
    if (at < std::ssize(node.processors)) return node;
    at -= std::ssize(node.processors);
  }
  return nodes.back();
}

void runThreadOn(const NumaNode& node) {
  const Mask mask(numa_allocate_cpumask());
  for (const int processor : node.processors) numa_bitmask_setbit(mask.get(), static_cast<unsigned>(processor));
  // A failure leaves the thread where it is, which is only slower: the process's share of the machine may have changed.
  numa_sched_setaffinity(0, mask.get());
}

void placePagesOn(std::span<const NumaNode> nodes) {
  if (nodes.empty()) return;
  const Mask mask(numa_allocate_nodemask());
  for (const NumaNode& node : nodes) numa_bitmask_setbit(mask.get(), static_cast<unsigned>(node.number));
  if (nodes.size() == 1) {
    numa_set_preferred(nodes.front().number);  // and not only there: a full node must not end the process
  } else {
    numa_set_interleave_mask(mask.get());
  }
}

}  // namespace chorus
