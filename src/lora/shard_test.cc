#include "lora/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "lora/testing/test_model.h"

namespace chorus {
namespace {

// A norm is computed on every rank. The bias of a linear that is cut along its inputs is part of a sum over the ranks.
TEST(ShardTest, BiasesOfNormsAreOnEveryRankAndThoseOfSumsOnOne) {
  TestModel model;
  const WeightSlot norm = slotOf(NormId::kAttentionIn).bias(), sum = slotOf(LinearId::kProj).bias();
  model.table.push_back({.name = "transformer.layers.{layer}.input_layernorm.bias", .shape = {4}, .slot = norm});
  model.table.push_back({.name = "transformer.layers.{layer}.mlp.proj.bias", .shape = {4}, .slot = sum});
  model.config.mapping.tp_size = 2;
  const std::array<float, 4> values = {1, 2, 3, 4};
  Adapter adapter;
  for (const WeightSlot& slot : {sum, norm}) {
    adapter.weights.push_back(
        {.slot = slot, .layer = 0, .rows = 4, .data = reinterpret_cast<const std::byte*>(values.data())});
  }
  const auto slotsOf = [&](int32_t rank) {
    std::vector<WeightSlot> slots;
    for (const AdapterWeight& weight : shardAdapter(adapter, model.config, model.table, rank).weights) {
      EXPECT_EQ(weight.rows, 4);
      slots.push_back(weight.slot);
    }
    return slots;
  };
  EXPECT_EQ(slotsOf(0), (std::vector<WeightSlot>{sum, norm}));
  EXPECT_EQ(slotsOf(1), std::vector<WeightSlot>{norm});
}

}  // namespace
}  // namespace chorus
