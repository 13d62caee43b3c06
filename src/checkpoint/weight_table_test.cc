#include "checkpoint/weight_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::vector<std::pair<int64_t, int64_t>> runs(const SourceRows& rows, int64_t first, int64_t count) {
  std::vector<std::pair<int64_t, int64_t>> found;
  rows.forEachRun(first, count, [&](int64_t row, int64_t size) { found.emplace_back(row, size); });
  return found;
}

TEST(SourceRowsTest, TogetherUnlessTheySayOtherwise) {
  EXPECT_THAT(runs({}, 3, 5), ElementsAre(Pair(3, 5)));
  EXPECT_THAT(runs({.total = 20, .begin = 10}, 3, 5), ElementsAre(Pair(13, 5)));
  EXPECT_THAT(runs({}, 3, 0), ElementsAre());
  EXPECT_EQ(SourceRows{}.rowsOfSource(7), 7);
  EXPECT_EQ((SourceRows{.total = 20, .begin = 10}).rowsOfSource(10), 20);
}

TEST(SourceRowsTest, BlocksOfAFusedTensorFromAnyRowOn) {
  // Two groups of four query rows, two key rows and two value rows: the keys.
  const SourceRows keys = {.total = 16, .begin = 4, .block = 2, .stride = 8};
  EXPECT_THAT(runs(keys, 0, 4), ElementsAre(Pair(4, 2), Pair(12, 2)));
  EXPECT_THAT(runs(keys, 1, 2), ElementsAre(Pair(5, 1), Pair(12, 1)));
  EXPECT_THAT(runs(keys, 3, 1), ElementsAre(Pair(13, 1)));
  const SourceRows queries = {.total = 16, .begin = 0, .block = 4, .stride = 8};
  EXPECT_THAT(runs(queries, 2, 6), ElementsAre(Pair(2, 2), Pair(8, 4)));
}

TEST(WeightTableTest, NamesHaveTheLayerInTheirMiddle) {
  EXPECT_EQ(layerName("a.{layer}.b", 12), "a.12.b");
  EXPECT_EQ(layerName("a.b", 12), "a.b");
}

TEST(WeightTableTest, IdsOfANameAreThoseThatMakeIt) {
  const auto ids = [](std::string_view pattern, std::string_view name) -> std::vector<int64_t> {
    const auto found = idsIn(pattern, name);
    return found ? std::vector<int64_t>{found->layer, found->expert} : std::vector<int64_t>();
  };
  EXPECT_THAT(ids("a.{layer}.e.{expert}", "a.12.e.3"), ElementsAre(12, 3));
  EXPECT_THAT(ids("a.{layer}.b", "a.0.b"), ElementsAre(0, 0));
  EXPECT_THAT(ids("a.b", "a.b"), ElementsAre(0, 0));
  for (const char* other : {"", "a", "a.", "a.1", "a.1.", "a.1.c", "a.1.bb", "b.1.b", "a..b", "a.-1.b", "a.+1.b",
                            "a.01.b", "a.x.b", "a.1x.b", "a.4294967296.b", "a.{layer}.b"}) {
    EXPECT_THAT(ids("a.{layer}.b", other), ElementsAre()) << other;
  }
}

TEST(WeightTableTest, RowsAreFoundByTheirSlot) {
  const WeightTable table = {{.name = "fc", .slot = slotOf(LinearId::kFc)},
                             {.name = "gate", .slot = slotOf(LinearId::kFc, 6)},
                             {.name = "gate.bias", .slot = slotOf(LinearId::kFc, 6).bias()},
                             {.name = "norm", .slot = slotOf(NormId::kMlpIn)}};
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc, 6)), &table[1]);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc, 6).bias()), &table[2]);
  EXPECT_EQ(findRow(table, table[2].slot.weight()), &table[1]);
  EXPECT_EQ(findRow(table, slotOf(NormId::kMlpIn)), &table[3]);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc).bias()), nullptr);
  EXPECT_EQ(findRow(table, slotOf(NormId::kAttentionIn)), nullptr);
  EXPECT_EQ(table[1].slot.whole(), table[0].slot);
  EXPECT_NE(slotOf(static_cast<NormId>(LinearId::kFc)), slotOf(LinearId::kFc)) << "ids of other kinds are others";
}

TEST(WeightTableTest, SourcesHaveTheShapeOfTheirRows) {
  const WeightRow row = {.shape = {6, 4}};
  EXPECT_THAT(sourceShape(row, {.rows = 2}), ElementsAre(2, 4));
  EXPECT_THAT(sourceShape(row, {.rows = 2, .in_source = {.total = 9, .begin = 3}}), ElementsAre(9, 4));
  EXPECT_THAT(sourceShape(row, {.rows = 6, .transform = {.transposed = true}}), ElementsAre(4, 6));
  EXPECT_THAT(sourceShape({.shape = {6}}, {.rows = 6}), ElementsAre(6));
}

TEST(SpellingTest, ARowKeepsTheSpellingOfTheFile) {
  const auto kept = [](const std::vector<std::string>& files) {
    WeightTable table(2);
    table[0].sources = {{.name = "a.{layer}"}, {.name = "long.a.{layer}", .spelling = 1}};
    table[1].sources = {{.name = "b"}, {.name = "long.b", .spelling = 1}};
    keepSpelling(table, SourceFormat::kHuggingFace,
                 [&](const std::string& name) { return std::ranges::find(files, name) != files.end(); });
    return std::pair(table[0].sources.at(0).name, table[1].sources.at(0).name);
  };
  using Names = std::pair<std::string, std::string>;
  EXPECT_EQ(kept({}), Names("a.{layer}", "b"));
  EXPECT_EQ(kept({"a.0", "b"}), Names("a.{layer}", "b"));
  EXPECT_EQ(kept({"long.a.0", "b"}), Names("long.a.{layer}", "b"));
  // The missing tensor is named as its file would name it.
  EXPECT_EQ(kept({"long.a.0"}), Names("long.a.{layer}", "long.b"));
}

}  // namespace
}  // namespace chorus
