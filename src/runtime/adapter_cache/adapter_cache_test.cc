#include "runtime/adapter_cache/adapter_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/testing/scenario_file.h"

namespace chorus {
namespace {

using Claim = AdapterCache::Claim;

const char* claimName(Claim claim) {
  switch (claim) {
    case Claim::kReady:
      return "ready";
    case Claim::kLoading:
      return "loading";
    case Claim::kMustLoad:
      return "must load";
    case Claim::kNoRoom:
      return "no room";
    case Claim::kTooLarge:
      return "too large";
    case Claim::kAbsent:
      return "absent";
  }
  return "?";
}

// Adapters are written "7" (current generation) or "7.1" (that generation).
AdapterKey keyOf(const AdapterCache& cache, const std::string& word) {
  const auto dot = word.find('.');
  const uint64_t task_id = std::stoull(word.substr(0, dot));
  if (dot == std::string::npos) return {task_id, cache.generation(task_id)};
  return {task_id, static_cast<uint32_t>(std::stoul(word.substr(dot + 1)))};
}

std::string evictedText(AdapterCache& cache) {
  std::string text;
  for (const auto& key : cache.takeEvicted()) {
    text += fmt::format("{}{}.{}", text.empty() ? "evicted " : ",", key.task_id, key.generation);
  }
  return text;
}

std::string play(AdapterCache& cache, const testing::ScenarioLine& line) {
  const auto key = line.words.empty() ? AdapterKey{} : keyOf(cache, line.words[0]);
  std::string said;
  if (line.command == "claim") {
    said = claimName(cache.claim(key, line.numberOf("bytes", 1), line.value("load", "yes") == "yes"));
  } else if (line.command == "loaded") {
    said = cache.loaded(key, line.numberOf("bytes", 1)) ? "" : "does not fit";
  } else if (line.command == "failed") {
    cache.failed(key);
  } else if (line.command == "release") {
    cache.release(key);
  } else if (line.command == "renew") {
    cache.renew(key.task_id);
  } else if (line.command == "used") {
    said = std::to_string(cache.usedBytes());
  } else {
    throw std::runtime_error("unknown command " + line.command);
  }
  const std::string evicted = evictedText(cache);
  return said + (said.empty() || evicted.empty() ? "" : ", ") + evicted;
}

TEST(AdapterCacheScenarios, Files) {
  const auto files = testing::scenarioFiles(CHORUS_SOURCE_DIR "/tests/scenarios/adapter_cache");
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    AdapterCache cache(0);
    for (const auto& line : testing::readScenario(file)) {
      if (line.command == "scenario") continue;
      if (line.command == "budget") {
        cache = AdapterCache(std::stoi(line.words.at(0)));
        continue;
      }
      EXPECT_EQ(play(cache, line), line.expected)
          << file.filename().string() << ":" << line.number << ": " << line.text;
    }
  }
}

// The cache as one would write it without care for speed: a vector in order of completion.
struct PlainCache {
  struct Entry {
    AdapterKey key;
    int64_t bytes;
    int32_t users;
    bool loading;
  };
  int64_t budget;
  std::vector<Entry> entries;  // completed ones in order of completion
  std::map<uint64_t, uint32_t> generations;

  Entry* find(AdapterKey key) {
    for (auto& entry : entries) {
      if (entry.key == key) return &entry;
    }
    return nullptr;
  }
  static bool free(const Entry& entry) { return entry.users == 0 && !entry.loading; }
  int64_t used() const {
    int64_t sum = 0;
    for (const auto& entry : entries) sum += entry.bytes;
    return sum;
  }
  bool room(int64_t bytes) {
    int64_t pinned = 0;
    for (const auto& entry : entries) pinned += free(entry) ? 0 : entry.bytes;
    if (pinned + bytes > budget) return false;
    while (used() + bytes > budget) entries.erase(std::find_if(entries.begin(), entries.end(), free));
    return true;
  }
  Claim claim(AdapterKey key, int64_t bytes, bool may_load) {
    if (Entry* entry = find(key)) {
      ++entry->users;
      return entry->loading ? Claim::kLoading : Claim::kReady;
    }
    if (!may_load) return Claim::kAbsent;
    if (bytes > budget) return Claim::kTooLarge;
    if (!room(bytes)) return Claim::kNoRoom;
    entries.push_back({key, bytes, 1, true});
    return Claim::kMustLoad;
  }
  void completeIfFree(AdapterKey key) {
    const Entry entry = *find(key);
    if (!free(entry)) return;
    std::erase_if(entries, [&](const Entry& e) { return e.key == key; });
    if (generations[key.task_id] == key.generation) entries.push_back(entry);
  }
};

TEST(AdapterCache, RandomisedAgainstAPlainModel) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
    const int64_t budget = 5 + pick(30);
    AdapterCache cache(budget);
    PlainCache plain{budget, {}, {}};
    for (int step = 0; step < 400; ++step) {
      const auto task = static_cast<uint64_t>(1 + pick(8));
      const AdapterKey key{task, cache.generation(task)};
      std::vector<AdapterKey> loading, used;
      for (const auto& entry : plain.entries) {
        if (entry.loading) loading.push_back(entry.key);
        if (entry.users > 0) used.push_back(entry.key);
      }
      const int action = pick(10);
      if (action < 4) {
        const int64_t bytes = 1 + pick(12);
        const bool may_load = pick(4) != 0;
        ASSERT_EQ(cache.claim(key, bytes, may_load), plain.claim(key, bytes, may_load)) << step;
      } else if (action < 6 && !loading.empty()) {
        const AdapterKey done = loading[static_cast<size_t>(pick(static_cast<int>(loading.size())))];
        const int64_t bytes = 1 + pick(12);
        const int64_t before = plain.find(done)->bytes;
        plain.find(done)->bytes = 0;
        const bool fits = bytes <= budget && plain.room(bytes);
        plain.find(done)->bytes = fits ? bytes : before;
        ASSERT_EQ(cache.loaded(done, bytes), fits) << step;
        if (fits) {
          plain.find(done)->loading = false;
          plain.completeIfFree(done);
        } else {
          cache.failed(done);
          std::erase_if(plain.entries, [&](const auto& e) { return e.key == done; });
        }
      } else if (action < 9 && !used.empty()) {
        const AdapterKey done = used[static_cast<size_t>(pick(static_cast<int>(used.size())))];
        cache.release(done);
        --plain.find(done)->users;
        plain.completeIfFree(done);
      } else if (action == 9) {
        const AdapterKey fresh = cache.renew(task);
        plain.generations[task] = fresh.generation;
        std::erase_if(plain.entries, [&](const auto& e) {
          return e.key == AdapterKey{task, fresh.generation - 1} && PlainCache::free(e);
        });
      }
      ASSERT_EQ(cache.usedBytes(), plain.used()) << step;
      ASSERT_LE(cache.usedBytes(), budget) << step;
      ASSERT_EQ(cache.entries(), plain.entries.size()) << step;
      for (const auto& entry : plain.entries) ASSERT_EQ(cache.resident(entry.key), !entry.loading) << step;
    }
  }
}

}  // namespace
}  // namespace chorus
