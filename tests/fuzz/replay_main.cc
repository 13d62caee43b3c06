// Replays a fuzz target over its corpus and over 10,000 seeded mutations of it, which is short enough for a normal test
// run. Usage: NAME_replay CORPUS_DIR [first_seed [mutations]]. If CHORUS_FUZZ_SEED_FILE is set, the current seed is
// written to that file. Runs on a thread with a small stack, so that inputs are found with which a parser recurses
// deeper than the smallest stack allows.
#include <pthread.h>

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

#include "fuzz/fuzz_target.h"
#include "fuzz/mutate_bytes.h"
#include "support/malloc_hook.h"

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

// Copies the input to memory of exactly its size, so that ASan sees a read past its end.
void runOne(const Bytes& bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  LLVMFuzzerTestOneInput(exact.get(), bytes.size());
}

struct Arguments {
  const char* corpus;
  uint64_t first_seed = 1, mutations = 10000;
};

// A thread's stack is 8 MB by default; this smaller size fits within every platform's. Sanitizers need several times as
// much.
#ifdef CHORUS_SANITIZED
constexpr size_t kStackBytes = size_t{4} << 20;
#else
constexpr size_t kStackBytes = size_t{256} << 10;
#endif

// Returns false when there is no corpus.
bool replay(const Arguments& arguments) {
  const auto corpus = readCorpus(arguments.corpus);
  if (corpus.empty()) return std::fprintf(stderr, "%s holds no corpus files\n", arguments.corpus), false;
  for (const auto& file : corpus) runOne(file);
  const char* last_seed_path = std::getenv("CHORUS_FUZZ_SEED_FILE");
  for (uint64_t seed = arguments.first_seed; seed < arguments.first_seed + arguments.mutations; ++seed) {
    if (last_seed_path != nullptr) std::ofstream(last_seed_path) << seed;
    std::mt19937_64 rng(seed);
    const Bytes bytes = chorus::test::mutateBytes(corpus[rng() % corpus.size()], rng);
    runOne(bytes);
  }
  const auto dearest = chorus::test::dearestInput();
  std::printf(
      "%zu corpus files and %llu mutations from seed %llu; the most expensive one cost %.0f us and %lld bytes beyond "
      "the "
      "share of its bytes\n",
      corpus.size(), static_cast<unsigned long long>(arguments.mutations),
      static_cast<unsigned long long>(arguments.first_seed), dearest.microseconds,
      static_cast<long long>(dearest.bytes));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s CORPUS_DIR [first_seed [mutations]]\n", argv[0]), 2;
  Arguments arguments{.corpus = argv[1]};
  if (argc > 2) arguments.first_seed = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) arguments.mutations = std::strtoull(argv[3], nullptr, 10);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  const auto run = [](void* of) -> void* { return replay(*static_cast<Arguments*>(of)) ? of : nullptr; };
  if (pthread_create(&thread, &attributes, run, &arguments) != 0) return std::fprintf(stderr, "no thread\n"), 1;
  void* result = nullptr;
  pthread_join(thread, &result);
  return result != nullptr ? 0 : 1;
}
