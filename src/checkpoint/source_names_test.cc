#include "checkpoint/source_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace chorus {
namespace {

using testing::ElementsAre;

WeightRow row(Stage stage, std::vector<WeightSource> sources, int64_t experts = 0, std::vector<int32_t> layers = {}) {
  return {.shape = {4, 2}, .stage = stage, .sources = std::move(sources), .experts = experts, .layers = layers};
}
// q and k are parts of one tensor; layer 1 of 3 has experts.
WeightTable tableOf(int64_t experts) {
  return {row(Stage::kFirst, {{.name = "embed"}, {.name = "other", .format = SourceFormat::kJax}}),
          row(Stage::kEveryLayer, {{.name = "l.{layer}.qk", .rows = 4}}),
          row(Stage::kEveryLayer, {{.name = "l.{layer}.qk", .rows = 4}}),
          row(Stage::kEveryLayer, {{.name = "l.{layer}.e.{expert}.w"}}, experts, {1}),
          row(Stage::kLast, {{.name = "head"}})};
}

TEST(SourceNamesTest, EveryTensorIsVisitedAndFound) {
  const WeightTable table = tableOf(2);
  const SourceNames names(table, 3, SourceFormat::kHuggingFace);
  std::vector<std::string> all, repeated;
  names.forEach([&](const SourceNames::Tensor& tensor, const std::string& name) {
    (tensor.is_new ? all : repeated).push_back(name);
    const auto found = names.find(name);
    EXPECT_TRUE(found && found->layer == tensor.layer && found->source->name == tensor.source->name) << name;
    return true;
  });
  EXPECT_THAT(all, ElementsAre("embed", "l.0.qk", "l.1.qk", "l.2.qk", "l.1.e.0.w", "l.1.e.1.w", "head"));
  EXPECT_THAT(repeated, ElementsAre("l.0.qk", "l.1.qk", "l.2.qk"));
  EXPECT_EQ(names.count(), 7);
  EXPECT_EQ(names.find("l.2.qk")->row, &table[1]) << "the first row of several";
  for (const char* other : {"other", "l.3.qk", "l.0.e.0.w", "l.1.e.2.w", "l.1.e.w", "head.0", ""}) {
    EXPECT_FALSE(names.find(other)) << other;
  }
}

TEST(SourceNamesTest, PartsOfTheModelAreVisitedAlone) {
  const WeightTable table = tableOf(2);
  const SourceNames names(table, 3, SourceFormat::kHuggingFace);
  std::vector<std::string> found;
  const SourceNames::Visit add = [&](const SourceNames::Tensor&, const std::string& name) {
    found.push_back(name);
    return true;
  };
  names.forEachOfLayer(1, add);
  EXPECT_THAT(found, ElementsAre("l.1.qk", "l.1.qk", "l.1.e.0.w", "l.1.e.1.w"));
  found.clear();
  names.forEachOfLayer(3, add);
  EXPECT_THAT(found, ElementsAre());
  names.forEachOfStage(Stage::kFirst, add);
  names.forEachOfStage(Stage::kLast, add);
  EXPECT_THAT(found, ElementsAre("embed", "head"));
}

// The table names 2^40 tensors, which could not be listed.
TEST(SourceNamesTest, VisitsEndEarly) {
  const WeightTable table = tableOf(int64_t{1} << 40);
  const SourceNames names(table, 3, SourceFormat::kHuggingFace);
  EXPECT_EQ(names.count(), (int64_t{1} << 40) + 5);
  EXPECT_TRUE(names.find("l.1.e.4294967295.w"));
  int visits = 0;
  names.forEach([&](const SourceNames::Tensor&, const std::string&) { return ++visits < 20; });
  EXPECT_EQ(visits, 20);
}

}  // namespace
}  // namespace chorus
