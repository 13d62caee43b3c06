// Converts one model from several kinds of sources (oracle/model_sources.py): each must give the same checkpoint, byte
// for byte. Every entry of goldens/model_sources is a source.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "convert/convert_model.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

fs::path sourcesDirectory() { return sourceDir() / "tests/goldens/model_sources"; }

std::vector<std::string> sourceNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(sourcesDirectory())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void expectEqualFiles(const fs::path& a, const fs::path& b) {
  std::vector<std::string> names_a, names_b;
  for (const auto& entry : fs::directory_iterator(a)) names_a.push_back(entry.path().filename());
  for (const auto& entry : fs::directory_iterator(b)) names_b.push_back(entry.path().filename());
  EXPECT_THAT(names_a, testing::UnorderedElementsAreArray(names_b));
  for (const std::string& name : names_a) {
    const std::string bytes = readFile(a / name, size_t{1} << 24), other = readFile(b / name, size_t{1} << 24);
    if (name == "config.json") {
      EXPECT_EQ(bytes, other);
    } else {
      EXPECT_TRUE(bytes == other) << name;
    }
  }
}

class ModelSources : public testing::TestWithParam<std::string> {};

TEST_P(ModelSources, GiveTheSameCheckpoint) {
  const TempDir dir;
  const ConvertOptions layouts[] = {
      {.workers = 1},
      {.dtype = DType::kFloat16, .tp_size = 2, .pp_size = 3, .use_parallel_embedding = true, .workers = 1},
      {.quantise = QuantiseOptions{.bits = 8}, .workers = 1}};
  for (const ConvertOptions& options : layouts) {
    SCOPED_TRACE("tp " + std::to_string(options.tp_size) + (options.quantise ? ", int8" : ""));
    convertModel(sourcesDirectory() / "huggingface", dir.path() / "expected", options);
    convertModel(sourcesDirectory() / GetParam(), dir.path() / "converted", options);
    expectEqualFiles(dir.path() / "converted", dir.path() / "expected");
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ModelSources, testing::ValuesIn(sourceNames()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace chorus::test
