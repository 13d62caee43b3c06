// Mutated model sources: each is read, or refused with one line. Configs and headers are mutated, 10,000 times in all.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "convert/convert_model.h"
#include "convert/sources/sources.h"
#include "fuzz/mutate_bytes.h"
#include "golden_case.h"
#include "random_llama.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMutationsOfAFile = 2500;

// The bytes before the values of a safetensors file, with their length; the whole of any other file.
size_t mutatedBytes(const fs::path& file, const std::string& bytes) {
  if (file.extension() != ".safetensors") return bytes.size();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return sizeof(header) + header;
}

class MalformedSources : public testing::Test {
 protected:
  // Mutates a file of the source, which stays as it was.
  void mutate(const fs::path& source, const std::string& name) {
    const fs::path file = source / name;
    const std::string original = readFile(file, size_t{1} << 24);
    const size_t head = mutatedBytes(file, original);
    const std::vector<uint8_t> bytes(original.begin(), original.begin() + static_cast<std::ptrdiff_t>(head));
    std::mt19937_64 rng(7100 + name.size());
    int refused = 0;
    for (int i = 0; i < kMutationsOfAFile; ++i) {
      const std::vector<uint8_t> mutated = mutateBytes(bytes, rng);
      writeFileAtomically(file, std::string(mutated.begin(), mutated.end()) + original.substr(head));
      try {
        openSource(source, {});
      } catch (const Error& error) {
        const std::string line = error.what();
        ASSERT_FALSE(line.empty());
        ASSERT_EQ(line.find('\n'), std::string::npos) << line;
        ++refused;
      }
    }
    writeFileAtomically(file, original);
    EXPECT_GT(refused, kMutationsOfAFile / 4);
    std::printf("%s of %s: %d of %d mutations refused\n", name.c_str(), source.filename().c_str(), refused,
                kMutationsOfAFile);
  }

  TempDir dir_;
};

TEST_F(MalformedSources, AreRefusedWithOneLine) {
  std::mt19937_64 rng(7);
  RandomLlama model = randomLlamaShape(rng);
  fillWeights(model, rng);
  const fs::path source = dir_.path() / "huggingface", checkpoint = dir_.path() / "checkpoint";
  writeModel(model, source);
  convertModel(source, checkpoint, {.tp_size = 2, .quantise = QuantiseOptions{.bits = 8}, .workers = 1});
  mutate(source, "config.json");
  mutate(source, "model.safetensors");
  mutate(checkpoint, "config.json");
  mutate(checkpoint, "rank1.safetensors");
}

}  // namespace
}  // namespace chorus::test
