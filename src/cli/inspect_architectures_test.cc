#include "cli/inspect_architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using testing::HasSubstr;

constexpr std::string_view kBegin = "<!-- chorus inspect --architectures -->\n";
constexpr std::string_view kEnd = "<!-- end -->\n";

TEST(ArchitecturesTableTest, IsTheTableOfModelsInReadme) {
  const std::string readme = readFile(test::sourceDir() / "README.md", size_t{1} << 20);
  const size_t begin = readme.find(kBegin);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = readme.find(kEnd, begin);
  ASSERT_NE(end, std::string::npos);
  EXPECT_TRUE(readme.substr(begin + kBegin.size(), end - begin - kBegin.size()) ==
              architecturesTable(builtInArchitectures()))
      << "README.md's table of models is not what the architectures say; write it again:\n"
         "  scripts/generated_pages.py";
}

TEST(ArchitecturesTableTest, EveryArchitectureNamesItsModelsItsPositionsAndItsStructure) {
  std::set<std::string> models;
  for (const Architecture& architecture : builtInArchitectures()) {
    SCOPED_TRACE(architecture.name);
    EXPECT_FALSE(architecture.models.empty());
    for (const std::string& model : architecture.models) EXPECT_TRUE(models.insert(model).second) << model;
    EXPECT_NE(architecture.structure, "");
    const std::string row = architecturesTable({&architecture, 1});
    EXPECT_EQ(std::count(row.begin(), row.end(), '|'), 3 * 5) << "a cell contains a | :\n" << row;
    EXPECT_THAT(row, testing::Not(HasSubstr("|  |"))) << "a cell is empty:\n" << row;
  }
}

TEST(ArchitecturesTableTest, SaysModelsClassesAndPositions) {
  const std::vector<Architecture> list = {
      {.name = "ZebraForCausalLM",
       .fields = {{"position_embedding_type", {"alibi", "spiral"}}, {"hidden_act", {"relu"}}},
       .aliases = {"Zebra2ForCausalLM"},
       .models = {"Zebra", "Zebra 2"},
       .structure = "stripes"}};
  EXPECT_EQ(architecturesTable(list),
            "| models | architecture | positions | structure |\n|---|---|---|---|\n"
            "| Zebra, Zebra 2 | `ZebraForCausalLM`, `Zebra2ForCausalLM` | ALiBi, spiral | stripes |\n");
  EXPECT_EQ(architecturesJson(list),
            Json::parse(R"([{"architecture": "ZebraForCausalLM", "aliases": ["Zebra2ForCausalLM"],
                             "models": ["Zebra", "Zebra 2"], "position_embedding_types": ["alibi", "spiral"],
                             "activations": ["relu"], "structure": "stripes"}])"));
}

}  // namespace
}  // namespace chorus
