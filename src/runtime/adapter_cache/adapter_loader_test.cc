#include "runtime/adapter_cache/adapter_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <new>
#include <string>
#include <thread>

#include "base/testing/eventually.h"

namespace chorus {
namespace {

using std::chrono::milliseconds;

// A fake load whose outcome follows the source's directory: "good" loads, "bad" fails, and "unsettled" throws
// AdapterUnsettled as many times as the counter `unsettled` says.
class AdapterLoaderTest : public ::testing::Test {
 protected:
  std::shared_ptr<const AdapterSource> source(const std::string& what) {
    auto source = std::make_shared<AdapterSource>();
    source->directory = what;
    return source;
  }
  std::shared_ptr<const PreparedAdapter> load(const AdapterSource& source) {
    const std::lock_guard lock(mutex);
    begun.push_back(source.directory.string());
    if (source.directory == "bad") fail(ErrorCode::kCorrupt, "bad one");
    if (source.directory == "unsettled" && unsettled-- > 0) throw AdapterUnsettled{milliseconds(20)};
    return std::make_shared<PreparedAdapter>();
  }
  // Waits for the next finished load.
  AdapterLoad await() {
    while (done.empty()) {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return std::exchange(woken, false); });
      while (auto load = loader.takeDone()) done.push_back(std::move(*load));
    }
    AdapterLoad first = std::move(done.front());
    done.pop_front();
    return first;
  }

  std::mutex mutex;
  std::condition_variable wake;
  bool woken = false;
  int unsettled = 0;
  std::vector<std::string> begun;
  std::deque<AdapterLoad> done;
  AdapterLoader loader{[this](const AdapterSource& source) { return load(source); }, 1,
                       [this] {
                         const std::lock_guard lock(mutex);
                         woken = true;
                         wake.notify_one();
                       }};
};

TEST_F(AdapterLoaderTest, LoadsInOrderAndSaysWhatFailed) {
  loader.submit({1, 1}, source("good"));
  loader.submit({2, 1}, source("bad"));
  loader.submit({3, 1}, source("good"));
  for (const uint64_t id : {1, 2, 3}) {
    const AdapterLoad load = await();
    EXPECT_EQ(load.key.task_id, id);
    EXPECT_EQ(load.parts == nullptr, id == 2);
    EXPECT_EQ(load.error, id == 2 ? "bad one" : "");
  }
}

TEST_F(AdapterLoaderTest, OthersAreLoadedWhileOneIsBeingWritten) {
  unsettled = 2;
  {
    const std::lock_guard hold(mutex);  // the first load waits for both to be in the queue
    loader.submit({1, 1}, source("unsettled"));
    loader.submit({2, 1}, source("good"));
  }
  EXPECT_EQ(await().key.task_id, 2u);
  const AdapterLoad load = await();
  EXPECT_EQ(load.key.task_id, 1u);
  EXPECT_NE(load.parts, nullptr);
  EXPECT_GE(load.seconds, 0.040) << "both waits count";
  EXPECT_LT(load.seconds, kPatience.count()) << "in seconds";
  EXPECT_EQ(begun, (std::vector<std::string>{"unsettled", "good", "unsettled", "unsettled"}));
}

TEST_F(AdapterLoaderTest, SlowLoadsDoNotDelayOthers) {
  std::mutex gate;
  std::atomic<int> heavy_begun = 0, light_done = 0;
  const auto load = [&](const AdapterSource& source) -> std::shared_ptr<const PreparedAdapter> {
    if (source.heavy) {
      ++heavy_begun;
      const std::lock_guard wait(gate);
    } else {
      ++light_done;
    }
    return std::make_shared<PreparedAdapter>();
  };
  std::unique_lock closed(gate);
  AdapterLoader two(load, 2, [] {});
  const auto submit = [&](uint64_t id, bool heavy) {
    auto source = std::make_shared<AdapterSource>();
    source->heavy = heavy;
    two.submit({id, 1}, source);
  };
  for (uint64_t id = 0; id < 8; ++id) submit(id, true);
  for (uint64_t id = 8; id < 16; ++id) submit(id, false);
  EXPECT_TRUE(eventually([&] { return light_done == 8; }));
  EXPECT_LE(heavy_begun, 1);
  closed.unlock();
  size_t done = 0;
  EXPECT_TRUE(eventually([&] {
    while (two.takeDone()) ++done;
    return done == 16;
  }));
}

// However many slow loads a client has, another client's does not wait for them.
TEST_F(AdapterLoaderTest, AClientLeavesAWorkerToOthers) {
  std::mutex gate;
  std::atomic<int> slow_begun = 0, other_done = 0;
  const auto load = [&](const AdapterSource& source) -> std::shared_ptr<const PreparedAdapter> {
    if (source.directory == "slow") {
      ++slow_begun;
      const std::lock_guard wait(gate);
    } else {
      ++other_done;
    }
    return std::make_shared<PreparedAdapter>();
  };
  std::unique_lock closed(gate);
  AdapterLoader two(load, 2, [] {});
  for (uint64_t id = 0; id < 8; ++id) two.submit({id, 1}, source("slow"), 1);
  EXPECT_TRUE(eventually([&] { return slow_begun == 2; })) << "a client has the workers that were asked for";
  for (uint64_t id = 8; id < 12; ++id) two.submit({id, 1}, source("other"), 2);
  EXPECT_TRUE(eventually([&] { return other_done == 4; }));
  EXPECT_EQ(slow_begun, 2);
  closed.unlock();
  size_t done = 0;
  EXPECT_TRUE(eventually([&] {
    while (two.takeDone()) ++done;
    return done == 12;
  }));
}

TEST_F(AdapterLoaderTest, ClientsTakeTurns) {
  std::mutex gate, mutex;
  std::vector<std::string> order;
  const auto load = [&](const AdapterSource& source) {
    const std::lock_guard wait(gate);
    const std::lock_guard lock(mutex);
    order.push_back(source.directory.string());
    return std::make_shared<PreparedAdapter>();
  };
  std::unique_lock closed(gate);
  AdapterLoader one(load, 1, [] {});
  uint64_t id = 0;
  const auto submit = [&](const char* what, uint64_t client) { one.submit({++id, 1}, source(what), client); };
  for (const char* what : {"a1", "a2", "a3", "a4", "a5"}) submit(what, 1);
  submit("b1", 2);
  submit("c1", 3);
  submit("c2", 3);
  closed.unlock();
  for (size_t done = 0; done < id;) {
    if (one.takeDone()) ++done;
  }
  // Whether a1 was taken before the others came decides about the turn after it.
  const auto place = [&](const char* what) { return std::ranges::find(order, what) - order.begin(); };
  EXPECT_LE(place("b1"), 3);
  EXPECT_LE(place("c1"), 3);
  EXPECT_LE(place("c2"), 5);
  EXPECT_EQ(order.back(), "a5");
}

TEST_F(AdapterLoaderTest, AWorkerSurvivesWhateverALoadThrows) {
  AdapterLoader other(
      [](const AdapterSource& source) -> std::shared_ptr<const PreparedAdapter> {
        if (source.directory == "memory") throw std::bad_alloc();
        if (source.directory == "number") throw 1;
        if (source.directory == "refused") throw AdapterRefused(Error(ErrorCode::kCorrupt, "not finite"));
        return std::make_shared<PreparedAdapter>();
      },
      1, [] {});
  other.submit({1, 1}, source("memory"));
  other.submit({2, 1}, source("number"));
  other.submit({3, 1}, source("refused"));
  other.submit({4, 1}, source("good"));
  std::vector<AdapterLoad> loads;
  ASSERT_TRUE(eventually([&] {
    while (auto load = other.takeDone()) loads.push_back(std::move(*load));
    return loads.size() == 4;
  }));
  EXPECT_EQ(loads[0].error_code, ErrorCode::kExhausted);
  EXPECT_EQ(loads[1].error_code, ErrorCode::kInternal);
  EXPECT_FALSE(loads[1].reported);
  EXPECT_EQ(loads[2].error_code, ErrorCode::kCorrupt);
  EXPECT_EQ(loads[2].error, "not finite");
  EXPECT_TRUE(loads[2].reported);
  EXPECT_NE(loads[3].parts, nullptr);
}

TEST_F(AdapterLoaderTest, AnAdapterThatIsNeverCompletelyWrittenFails) {
  unsettled = 1000;
  loader.submit({1, 1}, source("unsettled"));
  const AdapterLoad load = await();
  EXPECT_EQ(load.parts, nullptr);
  EXPECT_EQ(load.error_code, ErrorCode::kConflict);
  EXPECT_EQ(begun.size(), static_cast<size_t>(AdapterLoader::kTries));
}

TEST_F(AdapterLoaderTest, EndsWithoutWaitingForQueuedLoads) {
  unsettled = 1000;
  AdapterLoader other(
      [](const AdapterSource&) -> std::shared_ptr<const PreparedAdapter> {
        throw AdapterUnsettled{std::chrono::hours(1)};
      },
      1, [] {});
  other.submit({1, 1}, source("unsettled"));
  std::this_thread::sleep_for(milliseconds(20));
}

}  // namespace
}  // namespace chorus
