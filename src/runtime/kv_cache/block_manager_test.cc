#include "runtime/kv_cache/block_manager.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/testing/scenario_file.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

TEST(BlockManager, ExtendsInTokensAndReleases) {
  BlockManager manager({4, 8, 2, 32});
  EXPECT_EQ(manager.blocksFor(0), 0);
  EXPECT_EQ(manager.blocksFor(8), 1);
  EXPECT_EQ(manager.blocksFor(9), 2);
  ASSERT_TRUE(manager.extend(0, 9));
  EXPECT_EQ(manager.table(0).size(), 2u);
  ASSERT_TRUE(manager.extend(0, 16));
  EXPECT_EQ(manager.usedBlocks(), 2);
  EXPECT_FALSE(manager.extend(1, 17));
  EXPECT_TRUE(manager.table(1).empty());
  ASSERT_TRUE(manager.extend(1, 16));
  EXPECT_EQ(manager.freeBlocks(), 0);
  manager.release(0);
  EXPECT_EQ(manager.freeBlocks(), 2);
  EXPECT_TRUE(manager.table(0).empty());
}

TEST(BlockManager, TablesKeepTheirAddress) {
  BlockManager manager({8, 2, 3, 8});
  ASSERT_TRUE(manager.extend(2, 2));
  const int32_t* before = manager.table(2).data();
  ASSERT_TRUE(manager.extend(1, 8));
  ASSERT_TRUE(manager.extend(2, 8));
  EXPECT_EQ(manager.table(2).data(), before);
}

TEST(BlockManager, NextBlocksHaveOneNumberWhoeverAsks) {
  BlockManager manager({8, 2, 2, 8});
  const std::vector<int32_t> a = {1, 2, 3, 4, 5}, b = {1, 2, 3, 4, 6, 7}, c = {1, 2, 3, 9};
  ASSERT_TRUE(manager.extend(0, 5));
  EXPECT_EQ(manager.nextBlock(0, 1, a, 0), manager.match(1, b, 5).next_block);
  EXPECT_NE(manager.nextBlock(0, 1, a, 0), manager.match(2, b, 5).next_block) << "another cache namespace";
  manager.commitBlocks(0, 1, std::span(a).first(2));
  EXPECT_EQ(manager.nextBlock(0, 1, a, 2), manager.match(1, b, 5).next_block);
  EXPECT_NE(manager.nextBlock(0, 1, a, 2), manager.match(1, c, 3).next_block) << "other tokens";
  EXPECT_EQ(manager.nextBlock(0, 1, a, 4), 0u) << "its last block is not complete";
}

class Scenario {
 public:
  std::string play(const testing::ScenarioLine& line) {
    const auto slot = [&](size_t word) { return std::stoi(line.words.at(word)); };
    if (line.command == "scenario") return "";
    if (line.command == "pool") {
      manager_ = BlockManager({line.numberOf("blocks", 1), line.numberOf("tokens_per_block", 1), 8, 64});
      sequences_.clear();
    } else if (line.command == "begin") {
      return begin(slot(0), {static_cast<uint64_t>(line.numberOf("namespace", 1)), tokensOf(line.words.at(1))},
                   static_cast<uint64_t>(line.numberOf("scope", 0)));
    } else if (line.command == "append") {
      auto& tokens = sequences_.at(slot(0)).tokens;
      const auto more = tokensOf(line.words.at(1));
      tokens.insert(tokens.end(), more.begin(), more.end());
      return manager_.extend(slot(0), static_cast<int32_t>(tokens.size())) ? "" : "no room";
    } else if (line.command == "written") {
      const auto& sequence = sequences_.at(slot(0));
      const size_t count = line.words.size() > 1 ? std::stoul(line.words[1]) : sequence.tokens.size();
      manager_.commitBlocks(slot(0), sequence.cache_namespace, std::span(sequence.tokens).first(count));
    } else if (line.command == "release") {
      manager_.release(slot(0));
    } else if (line.command == "match") {
      const auto tokens = tokensOf(line.words.at(0));
      const auto found = manager_.match(static_cast<uint64_t>(line.numberOf("namespace", 1)), tokens,
                                        static_cast<int32_t>(tokens.size()));
      return fmt::format("{} cached={}", found.blocks, found.cached);
    } else if (line.command == "common") {
      const auto a = manager_.table(slot(0)), b = manager_.table(slot(1));
      size_t same = 0;
      while (same < std::min(a.size(), b.size()) && a[same] == b[same]) ++same;
      return std::to_string(same);
    } else if (line.command == "state") {
      return fmt::format("used={} cached={} empty={}", manager_.usedBlocks(), manager_.cachedBlocks(),
                         manager_.freeBlocks() - manager_.cachedBlocks());
    } else if (line.command == "freed") {
      std::vector<int32_t> slots, freed(line.words.size());
      for (size_t i = 0; i < line.words.size(); ++i) slots.push_back(slot(i));
      manager_.freedBy(slots, freed);
      return fmt::format("{}", fmt::join(freed, ","));
    } else {
      throw std::runtime_error("unknown command " + line.command);
    }
    return "";
  }

 private:
  struct Sequence {
    uint64_t cache_namespace = 1;
    std::vector<int32_t> tokens;
  };
  static std::vector<int32_t> tokensOf(const std::string& word) { return {word.begin(), word.end()}; }

  std::string begin(int32_t slot, Sequence sequence, uint64_t scope) {
    manager_.prepare(scope);
    manager_.occupy(slot, scope);
    const auto length = static_cast<int32_t>(sequence.tokens.size());
    const auto found = manager_.match(sequence.cache_namespace, sequence.tokens, length - 1);
    manager_.reuse(slot, sequence.cache_namespace, sequence.tokens, found.blocks);
    sequences_[slot] = std::move(sequence);
    if (manager_.extend(slot, length)) return std::to_string(found.blocks);
    manager_.release(slot);
    return "no room";
  }

  BlockManager manager_{{1, 1, 1, 1}};
  std::map<int32_t, Sequence> sequences_;
};

TEST(BlockManagerScenarios, Files) {
  const auto files = testing::scenarioFiles(test::sourceDir().string() + "/tests/scenarios/kv_cache");
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    Scenario scenario;
    for (const auto& line : testing::readScenario(file)) {
      EXPECT_EQ(scenario.play(line), line.expected)
          << file.filename().string() << ":" << line.number << ": " << line.text;
    }
  }
}

}  // namespace
}  // namespace chorus
