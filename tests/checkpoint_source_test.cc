// Checkpoints as sources: every architecture's model, converted for several ranks and joined again, is byte for byte
// the one that was converted for a single rank; and the other way round. Random Llama models go from any ranks to any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/convert_model.h"
#include "golden_case.h"
#include "models/architecture.h"
#include "random_llama.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

// The number of equal files. Both directories have the same files with the same bytes.
size_t expectEqualFiles(const fs::path& a, const fs::path& b) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(a)) {
    const fs::path name = entry.path().filename();
    EXPECT_TRUE(fs::exists(b / name)) << name;
    EXPECT_TRUE(readFile(a / name, size_t{1} << 30) == readFile(b / name, size_t{1} << 30)) << name;
    ++files;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(b), fs::directory_iterator()), static_cast<std::ptrdiff_t>(files));
  return files;
}

ConvertOptions optionsFor(const Cut& cut) {
  return {.tp_size = cut.tp_size,
          .pp_size = cut.pp_size,
          .use_parallel_embedding = cut.use_parallel_embedding,
          .embedding_sharding_dim = cut.embedding_sharding_dim,
          .workers = 1};
}

TEST(CheckpointSource, TwoByTwoRanksJoinedAreTheOriginal) {
  std::set<std::string> architectures;
  size_t cut_models = 0, files = 0;
  for (const std::string& name : goldenNames()) {
    SCOPED_TRACE(name);
    const GoldenCase golden = loadGolden(name, DType::kBFloat16);
    // A model that tensor parallelism cannot cut in two is cut into pipeline stages only.
    const int32_t tp_size = cutRefusal(golden, 2).empty() ? 2 : 1;
    cut_models += tp_size == 2;
    const TempDir dir;
    for (const int32_t embedding : {-1, 0, 1}) {
      const auto quantise = goldenQuantisation(golden.directory);
      ConvertOptions one = {.quantise = quantise, .workers = 1};
      ConvertOptions four = {.tp_size = tp_size,
                             .pp_size = 2,
                             .use_parallel_embedding = embedding >= 0,
                             .embedding_sharding_dim = std::max(embedding, 0),
                             .quantise = quantise,
                             .workers = 1};
      convertModel(golden.directory, dir.path() / "one", one);
      try {
        convertModel(golden.directory, dir.path() / "four", four);
      } catch (const Error&) {
        EXPECT_EQ(embedding, 1) << "only the width of the table may be indivisible";
        continue;
      }
      one.quantise = four.quantise = std::nullopt;
      convertModel(dir.path() / "four", dir.path() / "joined", one);
      files += expectEqualFiles(dir.path() / "one", dir.path() / "joined");
      convertModel(dir.path() / "one", dir.path() / "split", four);
      files += expectEqualFiles(dir.path() / "four", dir.path() / "split");
    }
    const Json config = readJsonFile(dir.path() / "one/config.json");
    architectures.insert(config.at("architecture").get<std::string>());
  }
  std::vector<std::string> built_in;
  for (const Architecture& architecture : builtInArchitectures()) {
    // No golden has NeMo's architecture; NemoModel.TwoByTwoRanksJoinedAreTheOriginal tests it.
    if (architecture.name != "GPTForCausalLM") built_in.push_back(architecture.name);
  }
  EXPECT_THAT(architectures, testing::IsSupersetOf(built_in));
  EXPECT_GT(cut_models, goldenNames().size() / 2);
  std::printf("%zu models of %zu architectures, %zu on 2 x 2 ranks, %zu equal files\n", goldenNames().size(),
              architectures.size(), cut_models, files);
}

TEST(CheckpointSource, RandomModelsGoFromAnyRanksToAny) {
  const TempDir root;
  size_t files = 0;
  for (uint64_t seed = 52000; seed < 52010; ++seed) {
    std::mt19937_64 rng(seed);
    RandomLlama model = randomLlamaShape(rng);
    fillWeights(model, rng);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + model.describe());
    const fs::path dir = root.path() / std::to_string(seed);
    writeModel(model, dir);
    for (int i = 0; i < 6; ++i) {
      const auto draw = [&] {
        return Cut{.tp_size = std::array{1, 2, 4}[rng() % 3],
                   .pp_size = std::array{1, 2, 3}[rng() % 3],
                   .use_parallel_embedding = rng() % 2 == 0,
                   .embedding_sharding_dim = static_cast<int32_t>(rng() % 2)};
      };
      const Cut from = draw(), to = draw();
      SCOPED_TRACE(from.name() + " to " + to.name());
      convertModel(dir, root.path() / "from", optionsFor(from));
      convertModel(root.path() / "from", root.path() / "to", optionsFor(to));
      convertModel(dir, root.path() / "direct", optionsFor(to));
      files += expectEqualFiles(root.path() / "to", root.path() / "direct");
    }
  }
  std::printf("%zu equal files\n", files);
}

}  // namespace
}  // namespace chorus::test
