// Forked sequences through a real network: they read the keys and values of shared blocks and have the same logits, bit
// by bit, as separate sequences.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "engine/rank_group.h"
#include "runtime/kv_cache/block_manager.h"
#include "runtime/step_builder.h"
#include "runtime/testing/engine_fixture.h"

namespace chorus {
namespace {

constexpr int32_t kWidth = 16, kBlocks = 64, kSlots = 6, kBranches = 3;

class BlockManagerEngineTest : public executor::EngineFixture {
 protected:
  using Logits = std::vector<std::vector<float>>;  // one row per token

  BlockManagerEngineTest()
      : ranks_(RankGroup::loadEngines(directory_ / "bare"), backend(),
               {.tokens_per_block = kWidth, .kv_blocks = kBlocks}) {}

  static BackendOptions backend() {
    BackendOptions options;
    options.threads = 1;
    return options;
  }
  // Runs tokens[first..end) of the sequence in this slot, one step of at most 64 tokens. Copies the block of the first
  // one if it is shared.
  Logits run(BlockManager& blocks, int32_t slot, std::span<const int32_t> tokens, int32_t first) {
    const bool begins_in_a_block = static_cast<size_t>(first) < blocks.table(slot).size() * kWidth;
    std::vector<BlockCopy> copies;
    if (begins_in_a_block && blocks.isShared(slot, first)) copies.push_back(blocks.copyOnWrite(slot, first));
    EXPECT_TRUE(blocks.extend(slot, static_cast<int32_t>(tokens.size())));
    const StepSequence sequence{tokens.subspan(static_cast<size_t>(first)), first, blocks.table(slot), nullptr,
                                LogitsWanted::kAllRows};
    StepInput input = builder_.build({&sequence, 1});
    input.copies = copies;
    copies_ += copies.size();
    const auto logits = ranks_.run(input);
    const size_t rows = tokens.size() - static_cast<size_t>(first), width = logits.size() / rows;
    Logits all;
    for (size_t row = 0; row < rows; ++row)
      all.emplace_back(logits.begin() + static_cast<ptrdiff_t>(row * width),
                       logits.begin() + static_cast<ptrdiff_t>((row + 1) * width));
    return all;
  }
  static std::vector<int32_t> branchOf(const std::vector<int32_t>& prompt, int32_t branch) {
    std::vector<int32_t> tokens = prompt;
    for (int32_t i = 0; i < 9; ++i) tokens.push_back(11 + 7 * branch + 3 * i);
    return tokens;
  }
  static bool equalBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  RankGroup ranks_;
  StepBuilder builder_{4, 64};
  size_t copies_ = 0;
};

TEST_F(BlockManagerEngineTest, ForkedSequencesHaveTheLogitsOfSeparateOnes) {
  std::vector<std::vector<int32_t>> prompts(2);
  for (int32_t i = 0; i < 2 * kWidth + 5; ++i) prompts[0].push_back(5 + i);
  for (int32_t i = 0; i < 3 * kWidth; ++i) prompts[1].push_back(90 - i);
  BlockManager blocks(kBlocks, kWidth, kSlots, 128);
  for (int32_t p = 0; p < 2; ++p) {
    const auto& prompt = prompts[static_cast<size_t>(p)];
    const auto length = static_cast<int32_t>(prompt.size());
    run(blocks, p * kBranches, prompt, 0);
    for (int32_t branch = 1; branch < kBranches; ++branch) blocks.fork(p * kBranches, p * kBranches + branch, length);
  }
  EXPECT_EQ(blocks.usedBlocks(), 3 + 3) << "the prompts' blocks are shared";
  // Each branch computes its own tokens, in turn with the others.
  std::map<std::pair<int32_t, int32_t>, Logits> forked;
  for (int32_t branch = 0; branch < kBranches; ++branch) {
    for (int32_t p = 0; p < 2; ++p) {
      const auto& prompt = prompts[static_cast<size_t>(p)];
      const auto length = static_cast<int32_t>(prompt.size());
      const int32_t slot = p * kBranches + branch;
      forked[{p, branch}] = run(blocks, slot, branchOf(prompt, branch), length);
    }
  }
  EXPECT_EQ(copies_, 2u) << "two of three sequences copy the incomplete block, and the last one writes in place";
  EXPECT_EQ(blocks.usedBlocks(), 2 + 3 + 3 + 3);
  for (int32_t slot = 0; slot < kSlots; ++slot) blocks.release(slot);
  ASSERT_EQ(blocks.usedBlocks(), 0);

  BlockManager separate(kBlocks, kWidth, kSlots, 128);
  for (int32_t p = 0; p < 2; ++p) {
    for (int32_t branch = 0; branch < kBranches; ++branch) {
      const auto tokens = branchOf(prompts[static_cast<size_t>(p)], branch);
      const Logits alone = run(separate, p * kBranches + branch, tokens, 0);
      const Logits& shared = forked[{p, branch}];
      ASSERT_EQ(shared.size(), 9u);
      for (size_t row = 0; row < shared.size(); ++row) {
        ASSERT_TRUE(equalBits(shared[row], alone[alone.size() - shared.size() + row]))
            << "prompt " << p << ", branch " << branch << ", row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace chorus
