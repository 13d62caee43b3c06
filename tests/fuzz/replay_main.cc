// Replays a fuzz target over its corpus and over 10,000 seeded mutations of it: the part of fuzzing that fits an
// ordinary test run. Usage: NAME_replay CORPUS_DIR [first_seed [mutations]]. With CHORUS_FUZZ_SEED_FILE set, that file
// holds the seed under way.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

#include "mutate_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {
using Bytes = std::vector<uint8_t>;

std::vector<Bytes> readCorpus(const char* dir) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// From memory of exactly the input's size, so that ASan sees a read behind its end.
void runOne(const Bytes& bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  LLVMFuzzerTestOneInput(exact.get(), bytes.size());
}
}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s CORPUS_DIR [first_seed [mutations]]\n", argv[0]), 2;
  const auto corpus = readCorpus(argv[1]);
  if (corpus.empty()) return std::fprintf(stderr, "%s holds no corpus files\n", argv[1]), 1;
  for (const auto& file : corpus) runOne(file);
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const uint64_t mutations = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 10000;
  const char* last_seed_path = std::getenv("CHORUS_FUZZ_SEED_FILE");
  for (uint64_t seed = first; seed < first + mutations; ++seed) {
    if (last_seed_path != nullptr) std::ofstream(last_seed_path) << seed;
    std::mt19937_64 rng(seed);
    const Bytes bytes = chorus::test::mutateBytes(corpus[rng() % corpus.size()], rng);
    runOne(bytes);
  }
  std::printf("%zu corpus files and %llu mutations from seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(first));
  return 0;
}
