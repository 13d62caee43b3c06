#include "kernels/numa.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "base/thread_pool.h"
#include "base/unnamed_file.h"
#include "kernels/moved_weights.h"

namespace chorus {
namespace {

std::vector<NumaNode> nodesOf(const std::vector<int>& sizes) {
  std::vector<NumaNode> nodes;
  int next = 0;
  for (const int size : sizes) {
    NumaNode node{.number = static_cast<int>(2 * nodes.size()), .processors = {}};
    for (int i = 0; i < size; ++i) node.processors.push_back(next++);
    nodes.push_back(node);
  }
  return nodes;
}

std::vector<int> numbersOf(std::span<const NumaNode> nodes) {
  std::vector<int> numbers;
  for (const NumaNode& node : nodes) numbers.push_back(node.number);
  return numbers;
}

TEST(NumaTest, PartsHaveWholeNodesOrShareOne) {
  const auto nodes = nodesOf({4, 4, 4, 4});
  EXPECT_EQ(numbersOf(nodesOfPart(nodes, 0, 1)), (std::vector{0, 2, 4, 6}));
  EXPECT_EQ(numbersOf(nodesOfPart(nodes, 0, 2)), (std::vector{0, 2}));
  EXPECT_EQ(numbersOf(nodesOfPart(nodes, 1, 2)), (std::vector{4, 6}));
  EXPECT_EQ(numbersOf(nodesOfPart(nodes, 2, 3)), (std::vector{4, 6}));
  EXPECT_EQ(numbersOf(nodesOfPart(nodes, 3, 8)), (std::vector{2}));
  EXPECT_EQ(numbersOf(nodesOfPart(nodes, 7, 8)), (std::vector{6}));
  EXPECT_TRUE(nodesOfPart({}, 1, 2).empty());
}

TEST(NumaTest, PartsThatShareANodeNeedProcessorsForAllOfThem) {
  EXPECT_TRUE(haveProcessorsFor(nodesOf({8, 8}), 1, 16));
  EXPECT_FALSE(haveProcessorsFor(nodesOf({8, 8}), 1, 17));
  EXPECT_TRUE(haveProcessorsFor(nodesOf({8, 8}), 2, 8));
  EXPECT_TRUE(haveProcessorsFor(nodesOf({8, 8}), 4, 4));
  EXPECT_FALSE(haveProcessorsFor(nodesOf({8, 8}), 3, 5)) << "two parts on the first node";
  EXPECT_FALSE(haveProcessorsFor(nodesOf({4, 4, 4}), 2, 6)) << "one node for the first part";
  EXPECT_TRUE(haveProcessorsFor(nodesOf({4, 12}), 2, 4));
  EXPECT_FALSE(haveProcessorsFor(nodesOf({4, 12}), 2, 8));
}

TEST(NumaTest, ThreadsAreSpreadInProportionToProcessors) {
  const auto threadsOf = [](const std::vector<int>& sizes, int threads) {
    const auto nodes = nodesOf(sizes);
    std::vector<int> counts(nodes.size());
    int last = 0;
    for (int t = 0; t < threads; ++t) {
      const int number = nodeOfThread(nodes, t, threads).number;
      EXPECT_GE(number, last) << "threads of a node are consecutive";
      last = number;
      ++counts[static_cast<size_t>(number / 2)];
    }
    return counts;
  };
  EXPECT_EQ(threadsOf({8, 8}, 16), (std::vector{8, 8}));
  EXPECT_EQ(threadsOf({8, 8}, 4), (std::vector{2, 2}));
  EXPECT_EQ(threadsOf({8, 8}, 1), (std::vector{1, 0}));
  EXPECT_EQ(threadsOf({2, 6}, 4), (std::vector{1, 3}));
  EXPECT_EQ(threadsOf({1, 1}, 6), (std::vector{3, 3}));
  EXPECT_EQ(threadsOf({3, 3, 3}, 9), (std::vector{3, 3, 3}));
}

// On a machine with several nodes, each processor that this process may use is on exactly one of them.
TEST(NumaTest, NodesOfThisMachineDivideItsProcessors) {
  const std::vector<NumaNode> nodes = numaNodes();
  EXPECT_NE(nodes.size(), 1u);
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  cpu_set_t seen;
  CPU_ZERO(&seen);
  for (const NumaNode& node : nodes) {
    EXPECT_FALSE(node.processors.empty());
    for (const int processor : node.processors) {
      EXPECT_TRUE(CPU_ISSET(processor, &allowed)) << processor;
      EXPECT_FALSE(CPU_ISSET(processor, &seen)) << processor;
      CPU_SET(processor, &seen);
    }
  }
  EXPECT_TRUE(nodes.empty() || CPU_EQUAL(&seen, &allowed));
}

// Number of pages of the mappings that begin in [begin, begin + bytes), by node. From numa_maps, because containers may
// not ask the kernel by get_mempolicy.
std::map<int, size_t> pagesByNode(const void* begin, size_t bytes) {
  std::map<int, size_t> pages;
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t address = 0;
    words >> std::hex >> address;
    if (address - reinterpret_cast<uintptr_t>(begin) >= bytes) continue;
    for (std::string word; words >> word;) {
      int node = 0;
      size_t count = 0;
      if (std::sscanf(word.c_str(), "N%d=%zu", &node, &count) == 2) pages[node] += count;
    }
  }
  return pages;
}

// scripts/numa.sh runs this test on a machine with two nodes. On a machine with one node all pages are on it.
TEST(NumaTest, MovedWeightsLieOnTheNodesOfTheirPart) {
  constexpr size_t kBytes = size_t{64} << 20;
  const UnnamedFile file(kBytes, "a test");
  std::vector<NumaNode> nodes = numaNodes();
  if (nodes.empty()) nodes = nodesOf({1});
  const auto all = kBytes / static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const auto& [part, parts] : {std::pair(0, 1), {0, 2}, {1, 2}}) {
    const auto own = nodesOfPart(nodes, part, parts);
    MovedWeights weights(file.bytes().data(), kBytes, {own.begin(), own.end()});
    ASSERT_NE(weights.data(), nullptr);
    weights.start(2, false, nullptr);
    weights.wait();
    const auto pages = pagesByNode(weights.data(), kBytes);
    for (const NumaNode& node : own) {
      ASSERT_TRUE(pages.contains(node.number)) << part << " of " << parts;
      const size_t share = all / own.size();
      EXPECT_NEAR(static_cast<double>(pages.at(node.number)), static_cast<double>(share), 1024)
          << part << " of " << parts;
    }
    EXPECT_EQ(pages.size(), own.size());
  }
}

TEST(NumaTest, WorkersOfAPoolRunOnTheirNodes) {
  std::vector<NumaNode> nodes = numaNodes();
  if (nodes.empty()) nodes = {{.number = 0, .processors = {sched_getcpu()}}};
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads, 0, [&](int thread) { runThreadOn(nodeOfThread(nodes, thread, kThreads)); });
  for (int round = 0; round < 50; ++round) {
    pool.run(64, [&](int64_t, int thread) {
      if (thread == 0) return;  // the caller's
      const std::vector<int>& own = nodeOfThread(nodes, thread, kThreads).processors;
      EXPECT_TRUE(std::find(own.begin(), own.end(), sched_getcpu()) != own.end()) << thread;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
  }
}

TEST(NumaTest, AThreadRunsOnTheProcessorsOfItsNode) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &allowed)) ++processor;
  std::thread([&] {
    runThreadOn({.number = 0, .processors = {processor}});
    cpu_set_t now;
    ASSERT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
    EXPECT_EQ(CPU_COUNT(&now), 1);
    EXPECT_TRUE(CPU_ISSET(processor, &now));
  }).join();
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &allowed)) << "only that thread";
}

}  // namespace
}  // namespace chorus
