#include "engine/rank_command.h"

#include <gtest/gtest.h>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

template <typename T>
std::vector<T> listOf(std::span<const T> values) {
  return {values.begin(), values.end()};
}

class RankCommandTest : public ::testing::Test {
 protected:
  // A step of two sequences in a model with two KV groups. The tables of a sequence are kStride entries apart.
  static constexpr ptrdiff_t kStride = 5;
  RankCommandTest() {
    input_.tokens = {5, 6, 7, 8};
    input_.sequences = {{0, 3, 0, BlockTables(std::span(memory_).first(2), kStride)},
                        {3, 1, 9, BlockTables(std::span(memory_).subspan(2, 3), kStride)}};
    input_.logits_rows = {2, 3};
    input_.adapters = {{AdapterId{1}, 0, {{0, 2}}}, {AdapterId{uint64_t{1} << 40}, 52, {{2, 3}, {3, 4}}}};
    input_.copies = {{4, 6}, {6, 7}};
    encodeStep(input_, 2, bytes_);
  }

  std::vector<int32_t> memory_ = {10, 11, 12, 13, 14, 20, 21, 22, 23, 24};
  StepInput input_;
  std::vector<std::byte> bytes_;
};

TEST_F(RankCommandTest, AStepIsTheSameOnEveryRank) {
  StepDecoder decoder;
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::vector<std::byte> sent = bytes_;
    EXPECT_EQ(commandOf(sent), RankCommand::kStep);
    const StepInput& step = decoder.decode(sent);
    sent.assign(sent.size(), std::byte{0xff});  // the decoded step must not point into the command
    EXPECT_EQ(step.tokens, input_.tokens);
    EXPECT_EQ(step.logits_rows, input_.logits_rows);
    ASSERT_EQ(step.sequences.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(step.sequences[i].row_begin, input_.sequences[i].row_begin);
      EXPECT_EQ(step.sequences[i].num_rows, input_.sequences[i].num_rows);
      EXPECT_EQ(step.sequences[i].first_position, input_.sequences[i].first_position);
      for (const int32_t group : {0, 1}) {
        EXPECT_EQ(listOf(step.sequences[i].block_tables[group]), listOf(input_.sequences[i].block_tables[group]));
      }
    }
    ASSERT_EQ(step.adapters.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(step.adapters[i].adapter, input_.adapters[i].adapter);
      EXPECT_EQ(step.adapters[i].vocab_size, input_.adapters[i].vocab_size);
      ASSERT_EQ(step.adapters[i].ranges.size(), i + 1);
      EXPECT_EQ(step.adapters[i].ranges[i].begin, input_.adapters[i].ranges[i].begin);
      EXPECT_EQ(step.adapters[i].ranges[i].end, input_.adapters[i].ranges[i].end);
    }
    ASSERT_EQ(step.copies.size(), 2u);
    EXPECT_EQ(step.copies[1].from, 6);
    EXPECT_EQ(step.copies[1].to, 7);
  }
}

TEST_F(RankCommandTest, AStepOfAnotherLengthIsRefused) {
  StepDecoder decoder;
  for (size_t size = 0; size < bytes_.size(); ++size) {
    EXPECT_EQ(errorOf([&] { decoder.decode(std::span(bytes_).first(size)); }), "a rank command is cut short") << size;
  }
  bytes_.push_back({});
  EXPECT_EQ(errorOf([&] { decoder.decode(bytes_); }), "a rank command has bytes beyond its end");
}

// Whatever the bytes are, the decoder reads no memory beyond them and allocates no more than they can describe.
TEST_F(RankCommandTest, ChangedBytesAreDecodedOrRefused) {
  StepDecoder decoder;
  for (size_t at = 4; at < bytes_.size(); ++at) {
    for (const int value : {0x01, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = bytes_;
      changed[at] ^= static_cast<std::byte>(value);
      errorOf([&] { decoder.decode(changed); });
    }
  }
}

TEST(RankCommand, CommandsAboutAdaptersNameThem) {
  const AdapterId id{0x123456789abcdef0u};
  for (const RankCommand command : {RankCommand::kPrepare, RankCommand::kMeasure, RankCommand::kDrop}) {
    const AdapterCommandBytes bytes = encodeAdapter(command, id);
    EXPECT_EQ(commandOf(bytes), command);
    EXPECT_EQ(decodeAdapter(bytes), id);
  }
  const std::vector<ComposedTerm> terms = {{AdapterId{3}, 0.5f}, {AdapterId{2}, -1.0f}};
  const std::vector<std::byte> bytes = encodeCompose(id, terms);
  EXPECT_EQ(commandOf(bytes), RankCommand::kCompose);
  EXPECT_EQ(decodeAdapter(bytes), id);
  const std::vector<ComposedTerm> decoded = decodeComposedTerms(bytes);
  ASSERT_EQ(decoded.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(decoded[i].adapter, terms[i].adapter);
    EXPECT_EQ(decoded[i].weight, terms[i].weight);
  }
  EXPECT_NE(errorOf([&] { decodeComposedTerms(std::span(bytes).first(bytes.size() - 1)); }), "");
  EXPECT_NE(errorOf([&] { decodeAdapter(std::span(bytes).first(15)); }), "");
  EXPECT_NE(errorOf([&] { commandOf(std::span(bytes).first(3)); }), "");
}

}  // namespace
}  // namespace chorus
