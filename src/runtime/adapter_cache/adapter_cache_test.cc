#include "runtime/adapter_cache/adapter_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/testing/plain_adapter_cache.h"
#include "runtime/testing/scenario_file.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using Claim = AdapterCache::Claim;
using testing::PlainAdapterCache;

// An adapter is written "7" (its current generation) or "7.1" (generation 1); several are written "7+8.1".
std::vector<AdapterKey> keysOf(const AdapterCache& cache, const std::string& text) {
  std::vector<AdapterKey> keys;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, '+');) {
    const auto dot = word.find('.');
    const uint64_t task_id = std::stoull(word.substr(0, dot));
    const bool current = dot == std::string::npos;
    keys.push_back({task_id, current ? cache.generation(task_id) : std::stoull(word.substr(dot + 1))});
  }
  return keys;
}

std::string textOf(const std::vector<AdapterKey>& keys, const std::string& before) {
  std::string text;
  for (const auto& key : keys) text += fmt::format("{}{}.{}", text.empty() ? before : ",", key.task_id, key.generation);
  return text;
}

// rank=R: the size of a rank-R adapter of a module with in = out = 5. Packed A is padded to a multiple of 16 ranks.
AdapterSize sizeOf(const testing::ScenarioLine& line) {
  if (const int rank = line.numberOf("rank", 0); rank > 0) return {(rank + 15) / 16 * 16 * 5 + rank * 5, rank * 10};
  return {line.numberOf("bytes", 1), line.numberOf("elements", 0)};
}

std::string claim(AdapterCache& cache, const std::vector<AdapterKey>& keys, const testing::ScenarioLine& line) {
  std::vector<AdapterWant> wants;
  for (const auto key : keys) wants.push_back({key, sizeOf(line)});
  std::vector<AdapterKey> to_load;
  switch (cache.claim(wants, line.value("load", "yes") == "yes", to_load)) {
    case Claim::kNoRoom:
      return "no room";
    case Claim::kTooLarge:
      return "too large";
    case Claim::kAbsent:
      return "absent";
    case Claim::kClaimed:
      break;
  }
  if (!to_load.empty()) return keys.size() == 1 ? "must load" : textOf(to_load, "must load ");
  return std::all_of(keys.begin(), keys.end(), [&](AdapterKey key) { return cache.host().resident(key); }) ? "ready"
                                                                                                           : "loading";
}

std::string ensure(AdapterCache& cache, const std::vector<AdapterKey>& keys) {
  std::vector<AdapterKey> to_copy;
  if (cache.ensure(keys, to_copy) != Claim::kClaimed) return "no room";
  return to_copy.empty() ? "there" : textOf(to_copy, "copied ");
}

std::string counts(const AdapterCache& cache) {
  const auto level = [](const char* name, const AdapterLevel& of) {
    return fmt::format("{}={}/{}/{}", name, of.hits(), of.misses(), of.evictions());
  };
  return fmt::format("loads={} failed={} {} {}", cache.loads(), cache.failures(), level("host", cache.host()),
                     level("device", cache.device()));
}

// Claims, loads and releases each adapter from the first to the last id, one after the other.
void serve(AdapterCache& cache, const testing::ScenarioLine& line) {
  const auto dots = line.words.at(0).find("..");
  for (int id = std::stoi(line.words[0]); id <= std::stoi(line.words[0].substr(dots + 2)); ++id) {
    const auto keys = keysOf(cache, std::to_string(id));
    if (claim(cache, keys, line) == "must load") cache.loaded(keys[0], sizeOf(line));
    cache.release(keys);
  }
}

std::string play(AdapterCache& cache, const testing::ScenarioLine& line) {
  const auto keys =
      line.words.empty() || line.command == "serve" ? std::vector<AdapterKey>() : keysOf(cache, line.words[0]);
  std::string said;
  if (line.command == "claim") {
    said = claim(cache, keys, line);
  } else if (line.command == "loaded") {
    for (const auto key : keys) said = cache.loaded(key, sizeOf(line)) ? "" : "does not fit";
  } else if (line.command == "failed") {
    cache.failed(keys.at(0));
  } else if (line.command == "release") {
    cache.release(keys);
  } else if (line.command == "renew") {
    cache.renew(keys.at(0).task_id);
  } else if (line.command == "ensure") {
    said = ensure(cache, keys);
  } else if (line.command == "leave") {
    cache.leave(keys);
  } else if (line.command == "serve") {
    serve(cache, line);
  } else if (line.command == "used") {
    said = std::to_string(cache.host().used().bytes);
  } else if (line.command == "resident") {
    said = fmt::format("host={} device={}", cache.host().entries(), cache.device().entries());
  } else if (line.command == "counts") {
    said = counts(cache);
  } else {
    throw std::runtime_error("unknown command " + line.command);
  }
  for (const auto& gone : {textOf(cache.goneFromHost(), "evicted "), textOf(cache.goneFromDevice(), "off device ")}) {
    if (!gone.empty()) said += (said.empty() ? "" : ", ") + gone;
  }
  cache.forgetGone();
  return said;
}

AdapterCache cacheOf(const testing::ScenarioLine& line) {
  const auto limit = [&](const char* key) {
    return line.values.contains(key) ? line.numberOf(key, 0) : AdapterSize::kUnlimited;
  };
  return {{limit("host"), limit("host_elements")}, {limit("device"), limit("device_elements")}};
}

TEST(AdapterCacheScenarios, Files) {
  const auto files = testing::scenarioFiles(test::sourceDir().string() + "/tests/scenarios/adapter_cache");
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {
    AdapterCache cache({}, {});
    for (const auto& line : testing::readScenario(file)) {
      if (line.command == "scenario") continue;
      if (line.command == "cache") {
        cache = cacheOf(line);
        continue;
      }
      EXPECT_EQ(play(cache, line), line.expected)
          << file.filename().string() << ":" << line.number << ": " << line.text;
    }
  }
}

// Applies the same random operations, in an order that requests could produce, to both caches and compares them.
class RandomRun {
 public:
  explicit RandomRun(unsigned seed)
      : random_(seed),
        host_limit_(limit(5 + pick(30))),
        device_limit_(limit(4 + pick(20))),
        cache_(host_limit_, device_limit_),
        plain_(host_limit_, device_limit_) {
    for (uint64_t task = 1; task <= kTasks; ++task) renew(task);
  }

  void step() {
    const int action = pick(12);
    if (action < 4) {
      claim();
    } else if (action < 6) {
      load();
    } else if (action < 8) {
      run();
    } else if (action < 11) {
      endOrPause();
    } else {
      const auto task = 1 + static_cast<uint64_t>(pick(kTasks));
      if (cache_.generation(task) != 0) earlier_.push_back({task, cache_.generation(task)});
      if (pick(3) == 0) {
        cache_.end(task);
        plain_.end(task);
      } else {
        renew(task);
      }
    }
    compare();
  }
  int64_t evictions() const { return cache_.host().evictions() + cache_.device().evictions(); }

 private:
  static constexpr int kTasks = 8;
  // A request with claimed adapters; `runs` while they are on the device.
  struct User {
    std::vector<AdapterKey> keys;
    bool runs = false;
  };

  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  AdapterSize limit(int64_t bytes) { return {bytes, pick(2) == 0 ? AdapterSize::kUnlimited : 5 + pick(40)}; }
  AdapterSize anySize() { return {1 + pick(12), pick(16)}; }

  void claim() {
    std::vector<AdapterWant> wants;
    for (uint64_t task = 1; task <= kTasks; ++task) {
      if (cache_.generation(task) != 0 && pick(5) == 0) wants.push_back({{task, cache_.generation(task)}, anySize()});
    }
    // A lease that was taken before its task was renewed or ended.
    if (!earlier_.empty() && pick(8) == 0) {
      wants.push_back({earlier_[static_cast<size_t>(pick(static_cast<int>(earlier_.size())))], anySize()});
    }
    if (wants.empty()) return;
    const bool may_load = pick(4) != 0;
    std::vector<AdapterKey> to_load;
    const Claim outcome = cache_.claim(wants, may_load, to_load);
    ASSERT_EQ(outcome, plain_.claim(wants, may_load));
    if (outcome != Claim::kClaimed) return;
    User user;
    for (const auto& want : wants) user.keys.push_back(want.key);
    users_.push_back(user);
    for (const auto key : to_load) ASSERT_TRUE(plain_.host.at(key).loading);
  }
  void renew(uint64_t task) { ASSERT_EQ(cache_.renew(task), plain_.renew(task)); }
  void load() {
    std::vector<AdapterKey> loading;
    for (const auto& entry : plain_.host.entries) {
      if (entry.loading) loading.push_back(entry.key);
    }
    if (loading.empty()) return;
    const AdapterKey key = loading[static_cast<size_t>(pick(static_cast<int>(loading.size())))];
    const AdapterSize size = anySize();
    const bool good = pick(6) != 0;
    if (good) {
      const bool fits = cache_.loaded(key, size);
      ASSERT_EQ(fits, plain_.loaded(key, size));
      if (fits) return;
    }
    cache_.failed(key);
    plain_.failed(key);
    for (auto& user : users_) std::erase(user.keys, key);
  }
  void run() {
    for (auto& user : users_) {
      const auto resident = [&](AdapterKey key) { return cache_.host().resident(key); };
      if (user.runs || user.keys.empty() || !std::all_of(user.keys.begin(), user.keys.end(), resident)) continue;
      std::vector<AdapterKey> to_copy;
      const Claim outcome = cache_.ensure(user.keys, to_copy);
      ASSERT_EQ(outcome, plain_.ensure(user.keys));
      user.runs = outcome == Claim::kClaimed;
      return;
    }
  }
  void endOrPause() {
    if (users_.empty()) return;
    const auto user = users_.begin() + pick(static_cast<int>(users_.size()));
    if (std::exchange(user->runs, false)) {
      cache_.leave(user->keys);
      for (const auto key : user->keys) plain_.leave(key);
      if (pick(3) == 0) return;  // paused: it keeps its claim
    }
    cache_.release(user->keys);
    for (const auto key : user->keys) plain_.release(key);
    users_.erase(user);
  }

  static void compareLevel(const AdapterLevel& level, const PlainAdapterCache::Level& plain) {
    ASSERT_EQ(level.used(), plain.used());
    ASSERT_TRUE(level.used().within(level.capacity()));
    ASSERT_EQ(level.entries(), plain.entries.size());
    ASSERT_EQ(level.hits(), plain.hits);
    ASSERT_EQ(level.misses(), plain.misses);
    ASSERT_EQ(level.evictions(), plain.evictions);
    size_t pinned = 0;
    for (const auto& entry : plain.entries) {
      ASSERT_EQ(level.resident(entry.key), !entry.loading);
      if (!PlainAdapterCache::Level::idle(entry)) ++pinned;
    }
    ASSERT_EQ(level.pinned(), pinned);
  }
  void compare() {
    compareLevel(cache_.host(), plain_.host);
    compareLevel(cache_.device(), plain_.device);
    ASSERT_EQ(cache_.loads(), plain_.loads);
    ASSERT_EQ(cache_.failures(), plain_.failures);
    for (const auto& entry : plain_.device.entries) ASSERT_TRUE(cache_.host().contains(entry.key));
    for (const auto key : cache_.goneFromHost()) ASSERT_EQ(plain_.host.find(key), nullptr);
    for (const auto key : cache_.goneFromDevice()) ASSERT_EQ(plain_.device.find(key), nullptr);
    cache_.forgetGone();
  }

  std::mt19937 random_;
  const AdapterSize host_limit_, device_limit_;
  AdapterCache cache_;
  PlainAdapterCache plain_;
  std::vector<User> users_;
  std::vector<AdapterKey> earlier_;  // keys that are not current any more
};

// A lease that is older than the end of its task still has its key.
TEST(AdapterCache, ATaskThatComesBackGetsAnotherKey) {
  AdapterCache cache({10, AdapterSize::kUnlimited}, {10, AdapterSize::kUnlimited});
  const AdapterKey first = cache.renew(1);
  cache.end(1);
  EXPECT_EQ(cache.generation(1), 0u);
  const AdapterKey second = cache.renew(1);
  EXPECT_NE(first, second);
  std::vector<AdapterKey> to_load;
  const AdapterWant wants[] = {{first, {1, 1}}, {second, {1, 1}}};
  ASSERT_EQ(cache.claim(wants, true, to_load), Claim::kClaimed);
  for (const AdapterKey key : to_load) EXPECT_TRUE(cache.loaded(key, {1, 1}));
  cache.release(to_load);
  EXPECT_EQ(cache.goneFromHost(), std::vector<AdapterKey>{first});
  EXPECT_TRUE(cache.host().resident(second));
}

TEST(AdapterCache, RandomisedAgainstAPlainModel) {
  int64_t evictions = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomRun run(seed);
    for (int step = 0; step < 400; ++step) {
      ASSERT_NO_FATAL_FAILURE(run.step()) << "step " << step;
    }
    evictions += run.evictions();
  }
  EXPECT_GT(evictions, 5000) << "too few evictions for the comparison to mean anything";
}

}  // namespace
}  // namespace chorus
