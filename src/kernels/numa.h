// Places threads and memory on a machine with several NUMA nodes, each of which has processors and memory of its own
// that they reach faster than another node's. By libnuma.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

struct NumaNode {
  int number = 0;               // the kernel's
  std::vector<int> processors;  // those that this process may use; not empty
};

// The nodes whose processors and memory this process may use, in ascending order. Empty if there is nothing to choose:
// the machine or the process's share of it is one node, a processor of this process is on a node without memory for it,
// or the kernel refuses to place memory (as in some containers).
std::vector<NumaNode> numaNodes();

// The nodes of part `part` of `parts`: an equal share of consecutive nodes, or one node if there are more parts than
// nodes.
std::span<const NumaNode> nodesOfPart(std::span<const NumaNode> nodes, int32_t part, int32_t parts);

// Whether the nodes of every part have a processor for each of its threads, beside those of other parts on these nodes.
// threads: of one part.
bool haveProcessorsFor(std::span<const NumaNode> nodes, int32_t parts, int threads);

// The node of one of `threads` threads. Consecutive threads share a node; each node gets threads in proportion to its
// processors. nodes: not empty.
const NumaNode& nodeOfThread(std::span<const NumaNode> nodes, int thread, int threads);

// Restricts the calling thread, and the threads that it starts later, to the node's processors.
void runThreadOn(const NumaNode& node);

// The pages that the calling thread touches first from now on lie on these nodes, in turn if there are several. nodes:
// may be empty, for no effect.
void placePagesOn(std::span<const NumaNode> nodes);

}  // namespace chorus
