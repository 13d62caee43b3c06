// Adapters whose tokenizer files are read after the server has started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/testing/error_of.h"
#include "base/testing/eventually.h"
#include "server/testing/adapter_directory_fixture.h"

namespace chorus::server {
namespace {

using testing::ElementsAre;

class DeferredTextTest : public AdapterDirectoryTest {
 protected:
  // An adapter that has tokenizer files.
  void withText(const std::string& name) { std::ofstream(adapter(name, root / "served") / "tokenizer.json") << "{}"; }
  size_t readTexts(AdapterDirectory& directory, const std::function<bool()>& stop = nullptr) {
    return directory.readTexts(found, stop);
  }
  std::shared_ptr<const TextCodec> textOf(const std::string& name) { return catalog.find(name)->text; }

  AdapterDirectory::Found found;
};

TEST_F(DeferredTextTest, AStartReadsNoTokenizerAndALaterPassReadsAll) {
  adapter("plain", root / "served");
  withText("speaking");
  withText("other");
  speaking = "speaking";
  auto directory = open();
  EXPECT_EQ(directory->scan({.defer_texts = true}).added.size(), 3u);
  EXPECT_EQ(texts_read, 1);
  EXPECT_EQ(textOf("plain"), catalog.base().text);
  EXPECT_EQ(textOf("speaking"), nullptr);
  const auto id = catalog.find("speaking")->adapter_id;

  EXPECT_EQ(readTexts(*directory), 0u);
  EXPECT_EQ(textOf("speaking"), own);
  EXPECT_EQ(textOf("other"), catalog.base().text);
  EXPECT_EQ(catalog.find("speaking")->adapter_id, id);
  EXPECT_EQ(engine.registrations, 3);
  EXPECT_EQ(texts_read, 3);
  EXPECT_EQ(readTexts(*directory), 0u);
  directory->scan();
  EXPECT_EQ(texts_read, 3) << "nothing has changed";
}

TEST_F(DeferredTextTest, RequestsThatWaitAreServedFirst) {
  for (const char* name : {"a", "b", "c", "d"}) withText(name);
  auto directory = open();
  directory->scan({.defer_texts = true});
  std::vector<std::string> order;
  const auto wait = [&](const std::string& name) {
    return catalog.waitForText(name, [&, name] { order.push_back(name + (textOf(name) ? "" : " without")); });
  };
  EXPECT_TRUE(wait("d") && wait("c"));
  const auto dropped = wait("c");
  EXPECT_THAT(catalog.awaited(), ElementsAre("d", "c"));
  catalog.cancelWait(*dropped);
  EXPECT_EQ(readTexts(*directory, [&] { return texts_read == 2; }), 2u);
  EXPECT_THAT(order, ElementsAre("d", "c"));
  EXPECT_EQ(textOf("a"), nullptr);
  EXPECT_FALSE(wait("c")) << "it has a text";
  EXPECT_FALSE(wait("unknown"));
  EXPECT_TRUE(wait("a"));
  catalog.endWaitsBefore(TextWaits::Clock::now() + std::chrono::seconds(1));
  EXPECT_EQ(order.back(), "a without");
  EXPECT_TRUE(wait("b"));
  catalog.endWaits();
  EXPECT_EQ(order.back(), "b without");
  EXPECT_FALSE(wait("b")) << "the server stops";
}

TEST_F(DeferredTextTest, ATextThatCannotBeReadEndsItsAdapter) {
  withText("bad");
  withText("good");
  auto directory = open();
  directory->scan({.defer_texts = true});
  bool called = false;
  EXPECT_TRUE(catalog.waitForText("bad", [&] { called = true; }));
  refusing = "bad";
  EXPECT_EQ(readTexts(*directory), 0u);
  EXPECT_TRUE(called);
  EXPECT_EQ(catalog.find("bad"), nullptr);
  EXPECT_EQ(engine.registered.size(), 1u);
  EXPECT_NE(textOf("good"), nullptr);
  refusing = "none";
  EXPECT_TRUE(directory->scan().added.empty()) << "unchanged files are not tried again";
}

TEST_F(DeferredTextTest, AnErrorThatMayPassIsTriedAgain) {
  withText("a");
  auto directory = open();
  directory->scan({.defer_texts = true});
  refusing = "a";
  refusal = ErrorCode::kInternal;
  // The time until the next attempt is 16 times that of this one, and doubles each time.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(readTexts(*directory), 1u);
  ASSERT_NE(catalog.find("a"), nullptr) << "it stays listed";
  EXPECT_EQ(textOf("a"), nullptr);
  refusing = "none";
  EXPECT_TRUE(eventually([&] { return readTexts(*directory) == 0; }));
  EXPECT_NE(textOf("a"), nullptr);
}

// The engine's loaders wait for the mutex of an adapter.
TEST_F(DeferredTextTest, ATextIsReadWhileOthersUseTheAdapter) {
  withText("a");
  auto directory = open();
  directory->scan({.defer_texts = true});
  std::promise<void> begun, release;
  while_text_is_read = [&] {
    begun.set_value();
    EXPECT_EQ(release.get_future().wait_for(kPatience), std::future_status::ready) << "the load waits for the text";
  };
  std::thread reader([&] { readTexts(*directory); });
  begun.get_future().wait();
  EXPECT_EQ(errorOf(engine.loads.at(1)), "");
  EXPECT_EQ(textOf("a"), nullptr);
  release.set_value();
  reader.join();
  EXPECT_NE(textOf("a"), nullptr);
}

// Otherwise a tenant that rewrites its files all the time would keep its requests waiting.
TEST_F(DeferredTextTest, FilesThatChangeMeanwhileAreTakenAtOnce) {
  withText("a");
  withText("gone");
  auto directory = open();
  directory->scan({.defer_texts = true});
  const auto first = catalog.find("a")->adapter_id;
  std::ofstream(root / "served" / "a" / "tokenizer.json") << "{ }";
  std::filesystem::remove_all(root / "served" / "gone");
  EXPECT_EQ(readTexts(*directory), 1u);
  EXPECT_NE(catalog.find("gone"), nullptr) << "it may be there again in a moment";
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_EQ(readTexts(*directory), 0u);
  EXPECT_THAT(found.replaced, ElementsAre("a"));
  EXPECT_THAT(found.removed, ElementsAre("gone"));
  EXPECT_NE(textOf("a"), nullptr);
  EXPECT_NE(catalog.find("a")->adapter_id, first);
}

TEST_F(DeferredTextTest, FilesThatChangeAfterTheTextAreSeenByTheFirstLoad) {
  withText("a");
  auto directory = open();
  directory->scan({.defer_texts = true});
  readTexts(*directory);
  speaking = "a";
  std::ofstream(root / "served" / "a" / "tokenizer.json") << "{ }";
  EXPECT_NE(errorOf([&] { engine.loadAll(); }).find("another tokenizer"), std::string::npos);
  readTexts(*directory);
  EXPECT_EQ(textOf("a"), own);
}

// A load finds another tokenizer, which only readTexts() reads; its caller is woken.
TEST_F(DeferredTextTest, ALoadLeavesANewTokenizerToALaterPass) {
  int left = 0;
  adapter("a", root / "served");
  auto directory = open({.refresh = AdapterRefresh::kAdd, .on_text_left = [&] { ++left; }});
  directory->scan();
  const auto before = catalog.find("a");
  write("a", "other weights");
  const auto first_load = engine.loads.at(1);
  EXPECT_EQ(errorOf(first_load), "");
  EXPECT_EQ(catalog.find("a")->adapter_id, before->adapter_id) << "new weights alone keep the id";
  EXPECT_EQ(left, 0);
  withText("a");
  speaking = "a";
  const int texts_before = texts_read;
  const auto next_load = engine.loads.at(1);
  EXPECT_NE(errorOf(next_load).find("another tokenizer"), std::string::npos);
  EXPECT_EQ(left, 1);
  EXPECT_EQ(texts_read, texts_before);
  bool called = false;
  EXPECT_TRUE(catalog.waitForText("a", [&] { called = true; })) << "requests wait for the text";
  EXPECT_EQ(readTexts(*directory), 0u);
  EXPECT_TRUE(called);
  EXPECT_EQ(textOf("a"), own);
  EXPECT_EQ(errorOf(engine.loads.at(*catalog.find("a")->adapter_id)), "");
}

// One tenant's costly files must not delay the changes of others.
TEST_F(DeferredTextTest, AScanThatLeavesWhatIsSlowTakesAllElse) {
  adapter("removed", root / "served");
  withText("a");
  speaking = "a";
  auto directory = open();
  directory->scan();
  withText("b");
  adapter("c", root / "served");
  std::filesystem::remove_all(root / "served" / "removed");
  const int texts_before = texts_read;
  found = directory->scan({.leave_slow = true});
  EXPECT_THAT(found.added, ElementsAre("c"));
  EXPECT_THAT(found.removed, ElementsAre("removed"));
  EXPECT_EQ(texts_read, texts_before + 1) << "that of c, which has no files of its own";
  EXPECT_EQ(catalog.find("b"), nullptr) << "it is listed with its text";
  EXPECT_EQ(readTexts(*directory), 0u);
  EXPECT_THAT(found.added, ElementsAre("c", "b"));
  EXPECT_NE(textOf("b"), nullptr);
}

TEST_F(DeferredTextTest, ATokenizerThatTakesLongIsReadAfterAllOthers) {
  for (const char* name : {"a", "b", "c"}) withText(name);
  costly = "a";
  quick_time = std::chrono::seconds(2);
  auto directory = open();
  EXPECT_THAT(directory->scan().added, ElementsAre("b", "c", "a"));
}

TEST_F(DeferredTextTest, ATokenizerThatTakesLongHasItsTurnAmongManyOthers) {
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) withText(name);
  costly = "a";
  quick_time = std::chrono::seconds(2);
  auto directory = open();
  EXPECT_THAT(directory->scan().added, ElementsAre("b", "c", "a", "d", "e", "f"));
}

TEST_F(DeferredTextTest, AnAdapterThatTookLongRestsWhateverChanges) {
  withText("a");
  reading_time = std::chrono::milliseconds(1000);
  quick_time = std::chrono::milliseconds(500);
  auto directory = open();
  directory->scan();
  EXPECT_EQ(texts_read, 1);
  reading_time = {};
  std::filesystem::last_write_time(root / "served" / "a" / "tokenizer.json",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // so that the files have been left alone
  directory->scan();
  EXPECT_EQ(texts_read, 1);
  std::filesystem::remove_all(root / "served" / "a");
  EXPECT_THAT(directory->scan().removed, ElementsAre("a"));
}

TEST_F(DeferredTextTest, AScanReadsTheTextOfARequestThatWaits) {
  for (const char* name : {"a", "b"}) withText(name);
  auto directory = open();
  directory->scan({.defer_texts = true});
  bool called = false;
  EXPECT_TRUE(catalog.waitForText("b", [&] { called = true; }));
  directory->scan({.leave_slow = true});
  EXPECT_TRUE(called);
  EXPECT_NE(textOf("b"), nullptr);
  EXPECT_EQ(textOf("a"), nullptr);
}

TEST_F(DeferredTextTest, ALongScanReadsASlowTextForWhichRequestsWait) {
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) adapter(name, root / "served");
  withText("z");
  costly = "z";
  quick_time = std::chrono::milliseconds(100);
  auto directory = open({});
  directory->scan({.defer_texts = true});
  bool called = false;
  EXPECT_TRUE(catalog.waitForText("z", [&] { called = true; }));
  const auto slowly = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return false;
  };
  // If a turn of it takes longer than 100 ms because the machine is busy, it first rests.
  EXPECT_TRUE(eventually([&] {
    directory->scan({.stop = slowly, .leave_slow = true});
    return called;
  }));
  EXPECT_NE(textOf("z"), nullptr);
}

}  // namespace
}  // namespace chorus::server
