#include "base/memory_budget.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(MemoryBudgetTest, TakesAllOrNothing) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.tryTake(60));
  EXPECT_FALSE(budget.tryTake(41));
  EXPECT_FALSE(budget.tryTake(~size_t{0})) << "no overflow";
  EXPECT_EQ(budget.used(), 60u);
  EXPECT_TRUE(budget.tryTake(40));
  budget.giveBack(100);
}

TEST(MemoryBudgetTest, AShareTakesFromItsParentToo) {
  MemoryBudget server(100);
  MemoryBudget one(80, &server), other(80, &server);
  EXPECT_TRUE(one.tryTake(80));
  EXPECT_FALSE(other.tryTake(21));
  EXPECT_EQ(other.used(), 0u) << "what the parent refuses is not held";
  EXPECT_TRUE(other.tryTake(20));
  one.giveBack(80);
  other.giveBack(20);
  EXPECT_EQ(server.used(), 0u);
}

TEST(MemoryChargeTest, GivesBackWhatItHolds) {
  MemoryBudget budget(100);
  {
    MemoryCharge charge(budget);
    EXPECT_TRUE(charge.resize(70));
    EXPECT_FALSE(charge.add(31));
    EXPECT_EQ(charge.bytes(), 70u);
    MemoryCharge moved(std::move(charge));
    EXPECT_TRUE(moved.resize(10));
    EXPECT_EQ(budget.used(), 10u);
    moved = MemoryCharge(budget);
    EXPECT_EQ(budget.used(), 0u);
    EXPECT_TRUE(moved.add(5));
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryChargeTest, WithoutABudgetNothingIsRefused) {
  MemoryCharge charge;
  EXPECT_TRUE(charge.resize(~size_t{0}));
}

}  // namespace
}  // namespace chorus
