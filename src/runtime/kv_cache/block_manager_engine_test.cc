// Forked sequences through a real network: they read the keys and values of shared blocks and have the same logits, bit
// by bit, as separate sequences.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>

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

  // Prepares run() for a model whose layers have these windows in turn.
  void open(const std::vector<int32_t>& windows) {
    const SessionOptions options = {.tokens_per_block = kWidth, .kv_blocks = kBlocks, .attention_windows = windows};
    BackendOptions backend;
    backend.threads = 1;
    ranks_.emplace(RankGroup::loadEngines(directory_ / "bare"), backend, options);
    pool_.windows = Session::kvCache(ranks_->engine().config(), ranks_->engine().buildConfig(), options).windows;
    copies_ = 0;
  }
  // Runs tokens[first..end) of the sequence in this slot, one step of at most 64 tokens, and releases the blocks that
  // later tokens do not read. Copies the blocks of the first token if they are shared.
  Logits run(BlockManager& blocks, int32_t slot, std::span<const int32_t> tokens, int32_t first) {
    const bool begins_in_a_block = static_cast<size_t>(first) < blocks.table(slot).size() * kWidth;
    std::vector<BlockCopy> copies;
    if (begins_in_a_block) blocks.copyOnWrite(slot, first, copies);
    EXPECT_TRUE(blocks.extend(slot, static_cast<int32_t>(tokens.size())));
    const StepSequence sequence{tokens.subspan(static_cast<size_t>(first)), first,
                                blocks.tables(slot, static_cast<int32_t>(tokens.size())), nullptr,
                                LogitsWanted::kAllRows};
    StepInput input = builder_.build({&sequence, 1});
    input.copies = copies;
    copies_ += copies.size();
    const auto logits = ranks_->run(input);
    blocks.slideWindows(slot, static_cast<int32_t>(tokens.size()));
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

  std::vector<std::vector<int32_t>> prompts() const {
    std::vector<std::vector<int32_t>> prompts(2);
    for (int32_t i = 0; i < 2 * kWidth + 5; ++i) prompts[0].push_back(5 + i);
    for (int32_t i = 0; i < 3 * kWidth; ++i) prompts[1].push_back(90 - i);
    return prompts;
  }
  // Runs each branch of each prompt, in turn with the others.
  std::map<std::pair<int32_t, int32_t>, Logits> runForked(BlockManager& blocks) {
    std::map<std::pair<int32_t, int32_t>, Logits> forked;
    for (int32_t branch = 0; branch < kBranches; ++branch) {
      for (int32_t p = 0; p < 2; ++p) {
        const auto prompt = prompts()[static_cast<size_t>(p)];
        forked[{p, branch}] =
            run(blocks, p * kBranches + branch, branchOf(prompt, branch), static_cast<int32_t>(prompt.size()));
      }
    }
    return forked;
  }
  void runPrompts(BlockManager& blocks) {
    for (int32_t p = 0; p < 2; ++p) {
      const auto prompt = prompts()[static_cast<size_t>(p)];
      run(blocks, p * kBranches, prompt, 0);
      for (int32_t branch = 1; branch < kBranches; ++branch) {
        blocks.fork(p * kBranches, p * kBranches + branch, static_cast<int32_t>(prompt.size()));
      }
    }
  }
  // Compares with sequences that compute everything themselves.
  void expectSeparate(const std::map<std::pair<int32_t, int32_t>, Logits>& forked) {
    BlockManager separate(pool_);
    for (const auto& [of, shared] : forked) {
      const auto tokens = branchOf(prompts()[static_cast<size_t>(of.first)], of.second);
      const Logits alone = run(separate, 0, tokens, 0);
      separate.release(0);
      ASSERT_EQ(shared.size(), 9u);
      for (size_t row = 0; row < shared.size(); ++row) {
        ASSERT_TRUE(equalBits(shared[row], alone[alone.size() - shared.size() + row]))
            << "prompt " << of.first << ", branch " << of.second << ", row " << row;
      }
    }
  }

  BlockPool pool_{.num_blocks = kBlocks, .tokens_per_block = kWidth, .num_slots = kSlots, .max_seq_len = 128};
  std::optional<RankGroup> ranks_;
  StepBuilder builder_{4, 64};
  size_t copies_ = 0;
};

TEST_F(BlockManagerEngineTest, ForkedSequencesHaveTheLogitsOfSeparateOnes) {
  open({});
  BlockManager blocks(pool_);
  runPrompts(blocks);
  EXPECT_EQ(blocks.usedBlocks(), 3 + 3) << "the prompts' blocks are shared";
  const auto forked = runForked(blocks);
  EXPECT_EQ(copies_, 2u) << "two of three sequences copy the incomplete block, and the last one writes in place";
  EXPECT_EQ(blocks.usedBlocks(), 2 + 3 + 3 + 3);
  for (int32_t slot = 0; slot < kSlots; ++slot) blocks.release(slot);
  ASSERT_EQ(blocks.usedBlocks(), 0);
  expectSeparate(forked);
}

// Every other layer has a window of 20 tokens, so it gives blocks back, which other sequences then write.
TEST_F(BlockManagerEngineTest, ForkedSequencesHaveTheLogitsOfSeparateOnesInModelsWithWindows) {
  open({20, 128});
  ASSERT_EQ(pool_.windows, (std::vector<int32_t>{0, 20}));
  BlockManager blocks(pool_);
  runPrompts(blocks);
  EXPECT_EQ(blocks.usedBlocks(), 3 + 2 + 3 + 2) << "each window has given back the first block";
  const auto forked = runForked(blocks);
  EXPECT_EQ(copies_, 4u) << "two sequences copy the incomplete block of each group";
  for (int32_t slot = 0; slot < kSlots; ++slot) blocks.release(slot);
  ASSERT_EQ(blocks.usedBlocks(), 0);
  expectSeparate(forked);
}

}  // namespace
}  // namespace chorus
