// Adapters that are loaded or pinned without a request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "runtime/testing/adapters_fixture.h"

namespace chorus {
namespace {

using executor::Request;
using testing::AdaptersFixture;
using testing::expectedTokens;
using testing::fakeSource;
using testing::Gate;
using ::testing::HasSubstr;
using Place = executor::AdapterState::Place;

class ExecutorHoldsTest : public AdaptersFixture {
 protected:
  ExecutorHoldsTest() {
    setAdapterRoom(10);
    options.adapter_pin_capacity = {5, AdapterSize::kUnlimited};
  }

  std::future<std::string> begin(uint64_t task_id, bool pin) {
    auto promise = std::make_shared<std::promise<std::string>>();
    core->loadAdapter(task_id, pin, [promise](const std::exception_ptr& error) {
      try {
        if (error) std::rethrow_exception(error);
        promise->set_value("");
      } catch (const std::exception& e) {
        promise->set_value(e.what());
      }
    });
    return promise->get_future();
  }
  // Loads an adapter, and returns the error's text; empty: it is loaded.
  std::string hold(uint64_t task_id, bool pin) { return begin(task_id, pin).get(); }
  executor::AdapterState stateOf(uint64_t task_id) {
    for (auto& state : core->adapterStates()) {
      if (state.taskId == task_id) return state;
    }
    ADD_FAILURE() << "task " << task_id << " is not known";
    return {};
  }
};

TEST_F(ExecutorHoldsTest, APrefetchedAdapterIsThereForItsFirstRequest) {
  start();
  core->registerAdapter(1, fakeSource("one-4"));
  EXPECT_EQ(hold(1, false), "");
  EXPECT_EQ(stateOf(1).place, Place::kHOST);
  EXPECT_EQ(stateOf(1).users, 0);
  EXPECT_FALSE(stateOf(1).pinned);
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(answer(withAdapter({1}, 3, 1)), expectedTokens({1}, 3, kVocab, "one-4"));
  EXPECT_EQ(hold(1, false), "") << "it is there already";
  EXPECT_EQ(loads, 1);
  // Nothing keeps it: two others take all of the room.
  core->registerAdapter(2, fakeSource("two-5"));
  core->registerAdapter(3, fakeSource("three-5"));
  EXPECT_EQ(hold(2, false), "");
  EXPECT_EQ(hold(3, false), "");
  EXPECT_EQ(stateOf(1).place, Place::kDISK);
}

TEST_F(ExecutorHoldsTest, APinnedAdapterIsNotEvicted) {
  start();
  core->registerAdapter(1, fakeSource("one-4"));
  core->registerAdapter(2, fakeSource("two-6"));
  core->registerAdapter(3, fakeSource("three-6"));
  EXPECT_EQ(hold(1, true), "");
  EXPECT_TRUE(stateOf(1).pinned);
  EXPECT_EQ(stateOf(1).users, 0) << "a pin is no user";
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(answer(withAdapter({1}, 2, 2)), expectedTokens({1}, 2, kVocab, "two-6"));
    EXPECT_EQ(answer(withAdapter({1}, 2, 3)), expectedTokens({1}, 2, kVocab, "three-6"));
  }
  EXPECT_EQ(stateOf(1).place, Place::kHOST);
  core->unpinAdapter(1);
  EXPECT_FALSE(stateOf(1).pinned);
  core->registerAdapter(4, fakeSource("four-9"));
  EXPECT_EQ(hold(4, false), "");
  EXPECT_EQ(stateOf(1).place, Place::kDISK);
}

TEST_F(ExecutorHoldsTest, PinsDoNotFillTheCache) {
  start();
  core->registerAdapter(1, fakeSource("one-3"));
  core->registerAdapter(2, fakeSource("two-3"));
  core->registerAdapter(3, fakeSource("three-2"));
  core->registerAdapter(4, fakeSource("four-11"));
  EXPECT_EQ(hold(1, true), "");
  const int before = loads;
  EXPECT_THAT(hold(2, true), HasSubstr("they would take 6 of 5 bytes"));
  EXPECT_EQ(loads, before) << "it is refused before it is loaded";
  EXPECT_FALSE(stateOf(2).pinned);
  EXPECT_EQ(hold(3, true), "");
  EXPECT_EQ(hold(3, true), "") << "it is pinned already";
  EXPECT_THAT(hold(4, true), HasSubstr("they would take 16 of 5 bytes"));
  EXPECT_THAT(hold(4, false), HasSubstr("Cache is full"));
  EXPECT_THAT(hold(9, true), HasSubstr("not found"));
  core->unpinAdapter(1);
  EXPECT_EQ(hold(2, true), "");
}

// The size of such an adapter is an upper bound until it was loaded.
TEST_F(ExecutorHoldsTest, TheTrueSizeDecidesOnAPin) {
  load = [](const AdapterSource& source) {
    return testing::fakeParts(source.directory == "small-9" ? "small-4" : source.directory.string());
  };
  start();
  for (const auto& [id, name] : {std::pair(1, "small-9"), std::pair(2, "large-9")}) {
    auto source = std::make_shared<AdapterSource>(*fakeSource(name));
    source->droppable_bytes = source->bytes;
    core->registerAdapter(static_cast<uint64_t>(id), source);
  }
  EXPECT_EQ(hold(1, true), "");
  EXPECT_EQ(stateOf(1).bytes, 4);
  core->unpinAdapter(1);
  EXPECT_THAT(hold(2, true), HasSubstr("they would take 9 of 5 bytes"));
  EXPECT_FALSE(stateOf(2).pinned);
  EXPECT_EQ(stateOf(2).users, 0);
}

// Its own size, even without all values that may equal the base's, is larger than the cache.
TEST_F(ExecutorHoldsTest, AnAdapterThatCanNeverFitEvictsNobody) {
  start();
  core->registerAdapter(1, fakeSource("one-4"));
  EXPECT_EQ(hold(1, false), "");
  for (const auto& [least, id] : {std::pair(11, 2), std::pair(10, 3)}) {
    auto source = std::make_shared<AdapterSource>(*fakeSource("large-20"));
    source->droppable_bytes = source->bytes - least;
    core->registerAdapter(static_cast<uint64_t>(id), source);
  }
  EXPECT_THAT(hold(2, false), HasSubstr("Cache is full"));
  EXPECT_EQ(loads, 1) << "it is refused before it is loaded";
  EXPECT_EQ(stateOf(1).place, Place::kHOST);
  EXPECT_THAT(hold(3, false), HasSubstr("Cache is full"));
  EXPECT_EQ(loads, 2) << "it could fit";
}

TEST_F(ExecutorHoldsTest, APinFollowsItsTask) {
  start();
  core->registerAdapter(1, fakeSource("old-4"));
  EXPECT_EQ(hold(1, true), "");
  core->registerAdapter(1, fakeSource("new-3"));
  EXPECT_EQ(hold(1, false), "") << "the new content is loaded";
  EXPECT_TRUE(stateOf(1).pinned);
  EXPECT_EQ(stateOf(1).bytes, 3);
  EXPECT_EQ(core->adapterCacheStats().host.residentBytes, 3) << "the old content has left";
  core->registerAdapter(2, fakeSource("moved-5"));
  core->moveAdapterPin(1, 2);
  EXPECT_EQ(hold(2, false), "");
  EXPECT_TRUE(stateOf(2).pinned);
  EXPECT_FALSE(stateOf(1).pinned);
  core->moveAdapterPin(1, 2);
  EXPECT_TRUE(stateOf(2).pinned) << "there was no pin to move";
  // New content that is too large to be pinned is served without a pin.
  core->registerAdapter(2, fakeSource("large-6"));
  EXPECT_EQ(answer(withAdapter({1}, 2, 2)), expectedTokens({1}, 2, kVocab, "large-6"));
  EXPECT_FALSE(stateOf(2).pinned);
  core->unregisterAdapter(2);
  EXPECT_EQ(core->adapterStates().size(), 1u);
}

TEST_F(ExecutorHoldsTest, AFailedLoadEndsItsHolds) {
  Gate gate;
  gate.close();
  breakLoad("bad-2", gate, "bad weights");
  start();
  core->registerAdapter(1, fakeSource("bad-2"));
  auto prefetched = begin(1, false), pinned = begin(1, true);
  gate.awaitArrivals(1);
  EXPECT_EQ(stateOf(1).place, Place::kLOADING);
  gate.open();
  EXPECT_THAT(prefetched.get(), HasSubstr("bad weights"));
  EXPECT_THAT(pinned.get(), HasSubstr("bad weights"));
  EXPECT_FALSE(stateOf(1).pinned);
  EXPECT_EQ(core->adapterCacheStats().host.residentBytes, 0);
}

// A server stops serving an adapter whose files its first load refuses, before the load has ended.
TEST_F(ExecutorHoldsTest, WhoWaitsForALoadOfATaskThatIsUnregisteredGetsTheLoadsError) {
  for (const auto& [name, error] : {std::pair("bad-2", "bad weights"), std::pair("good-2", "was unregistered")}) {
    SCOPED_TRACE(name);
    Gate gate;
    gate.close();
    load = [&gate](const AdapterSource& source) {
      gate.pass();
      if (source.directory == "bad-2") fail(ErrorCode::kCorrupt, "bad weights");
      return testing::fakeParts(source.directory.string());
    };
    start();
    core->registerAdapter(1, fakeSource(name));
    auto prefetched = begin(1, false), pinned = begin(1, true);
    gate.awaitArrivals(1);
    core->unregisterAdapter(1);
    EXPECT_TRUE(core->adapterStates().empty());
    gate.open();
    EXPECT_THAT(prefetched.get(), HasSubstr(error));
    EXPECT_THAT(pinned.get(), HasSubstr(error));
    EXPECT_THAT(hold(1, false), HasSubstr("not found"));
    core->registerAdapter(1, fakeSource("good-2"));
    EXPECT_EQ(hold(1, false), "");
    EXPECT_FALSE(stateOf(1).pinned);
    core.reset();
  }
}

// A server's callback of the load refuses content of an adapter that it no longer serves.
TEST_F(ExecutorHoldsTest, WhoWaitsForALoadOfARemovedTaskHearsThatItIsNotFound) {
  Gate gate;
  gate.close();
  load = [&gate](const AdapterSource&) -> std::shared_ptr<const PreparedAdapter> {
    gate.pass();
    fail(ErrorCode::kConflict, "was removed");
  };
  start();
  core->registerAdapter(1, fakeSource("one-2"));
  std::promise<ErrorCode> code;
  core->loadAdapter(1, false, [&code](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      code.set_value(e.code());
    }
  });
  gate.awaitArrivals(1);
  core->unregisterAdapter(1);
  EXPECT_TRUE(core->adapterStates().empty());
  gate.open();
  EXPECT_EQ(code.get_future().get(), ErrorCode::kNotFound);
}

TEST_F(ExecutorHoldsTest, ALoadWaitsForRoomOrIsRefused) {
  for (const bool reject : {false, true}) {
    SCOPED_TRACE(reject);
    Gate gate;
    gate.close();
    before_step = [&gate](int, const StepInput&) { gate.pass(); };
    options.reject_when_full = reject;
    start();
    core->registerAdapter(1, fakeSource("one-8"));
    core->registerAdapter(2, fakeSource("two-8"));
    const auto running = enqueue(withAdapter({1}, 4, 1));
    gate.awaitArrivals(1);
    auto loaded = begin(2, false);
    gate.open();
    EXPECT_EQ(resultOf(running).outputTokenIds.at(0), expectedTokens({1}, 4, kVocab, "one-8"));
    EXPECT_THAT(loaded.get(), reject ? HasSubstr("Cache is full") : HasSubstr(""));
    EXPECT_EQ(stateOf(2).place, reject ? Place::kDISK : Place::kHOST);
    core.reset();
  }
}

// Pins last, so a request that needs their room is refused although requests wait for room.
TEST_F(ExecutorHoldsTest, NobodyWaitsForAPinToEnd) {
  start();
  core->registerAdapter(1, fakeSource("pinned-4"));
  core->registerAdapter(2, fakeSource("two-4"));
  core->registerAdapter(3, fakeSource("three-4"));
  EXPECT_EQ(hold(1, true), "");
  Request composed = request({1}, 2);
  composed.setLoraComposition({{2, 1.0f}, {3, 1.0f}});
  EXPECT_THAT(errorOf(enqueue(composed)), HasSubstr("Cache is full"));
  Request with_pinned = request({1}, 2);
  with_pinned.setLoraComposition({{1, 1.0f}, {3, 1.0f}});
  answer(with_pinned);
}

TEST_F(ExecutorHoldsTest, ShutdownEndsWaits) {
  Gate gate;
  gate.close();
  load = [&gate, plain = load](const AdapterSource& source) {
    gate.pass();
    return plain(source);
  };
  start();
  core->registerAdapter(1, fakeSource("one-1"));
  auto waiting = begin(1, true);
  gate.awaitArrivals(1);
  core->shutdown();
  EXPECT_EQ(waiting.get(), "the executor was shut down");
  EXPECT_EQ(hold(1, false), "the executor was shut down");
  gate.open();
}

}  // namespace
}  // namespace chorus
