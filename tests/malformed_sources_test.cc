// Mutated model sources: each is converted, or refused with one line. Configs and headers are mutated, 10,000 times in
// all: half of the mutations change bytes, the others a value of the JSON.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/convert_model.h"
#include "fuzz/mutate_bytes.h"
#include "random_llama.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMutationsOfAFile = 2500;

// A file in its parts: a safetensors file begins with the length of its JSON and ends with values. Any other file is
// only JSON.
struct JsonFile {
  bool has_length = false;
  std::string json, values;

  static JsonFile read(const fs::path& path) {
    const std::string bytes = readFile(path, size_t{1} << 24);
    if (path.extension() != ".safetensors") return {.json = bytes};
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    return {true, bytes.substr(sizeof(length), length), bytes.substr(sizeof(length) + length)};
  }
  std::string head(const std::string& text) const {
    const uint64_t length = text.size();
    return (has_length ? std::string(reinterpret_cast<const char*>(&length), sizeof(length)) : "") + text;
  }
};

Json randomValue(std::mt19937_64& rng) {
  const Json values[] = {nullptr,
                         true,
                         -1,
                         0,
                         1,
                         3,
                         7,
                         1e300,
                         INT64_MAX,
                         INT64_MIN,
                         0.5,
                         "",
                         "F64",
                         "I64",
                         "float16",
                         "gelu",
                         "\n",
                         "{layer}",
                         Json::array(),
                         Json::object(),
                         {1, 2},
                         {-1, 4},
                         {0},
                         {4294967296, 4294967296},
                         {{"type", "llama3"}}};
  return values[rng() % std::size(values)];
}

// Replaces, removes or adds a value somewhere in the JSON.
void mutateJson(Json& json, std::mt19937_64& rng) {
  if (!json.is_structured() || json.empty() || rng() % 4 == 0) {
    json = randomValue(rng);
    return;
  }
  auto member = std::next(json.begin(), static_cast<std::ptrdiff_t>(rng() % json.size()));
  if (rng() % 4 == 0) {
    json.erase(member);
  } else if (json.is_object() && rng() % 4 == 0) {
    const Json value = *member;
    json[member.key() + "x"] = value;
  } else {
    mutateJson(*member, rng);
  }
}

std::string mutated(const JsonFile& file, std::mt19937_64& rng) {
  if (rng() % 2 == 0) {
    const std::string head = file.head(file.json);
    const std::vector<uint8_t> bytes = mutateBytes({head.begin(), head.end()}, rng);
    return std::string(bytes.begin(), bytes.end());
  }
  Json json = Json::parse(file.json);
  auto member = std::next(json.begin(), static_cast<std::ptrdiff_t>(rng() % json.size()));
  mutateJson(*member, rng);
  return file.head(json.dump());
}

// Without the sync of writeFileAtomically, which would take most of the test's time. No map of the file is left.
void write(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

class MalformedSources : public testing::Test {
 protected:
  // Mutates a file of the source, which stays as it was.
  void mutate(const fs::path& source, const std::string& name) {
    const JsonFile original = JsonFile::read(source / name);
    std::mt19937_64 rng(7100 + name.size());
    int refused = 0;
    for (int i = 0; i < kMutationsOfAFile; ++i) {
      const std::string head = mutated(original, rng);
      SCOPED_TRACE(head);
      write(source / name, head + original.values);
      try {
        convertModel(source, dir_.path() / "converted", {.workers = 1});
      } catch (const Error& error) {
        const std::string line = error.what();
        ASSERT_FALSE(line.empty());
        ASSERT_EQ(line.find('\n'), std::string::npos) << line;
        ++refused;
      }
    }
    write(source / name, original.head(original.json) + original.values);
    EXPECT_GT(refused, kMutationsOfAFile / 4);
    EXPECT_LT(refused, kMutationsOfAFile);
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
