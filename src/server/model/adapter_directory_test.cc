#include "server/model/adapter_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <utility>

#include <spdlog/sinks/ostream_sink.h>

#include "base/file_reader.h"
#include "base/log.h"
#include "base/testing/error_of.h"
#include "server/testing/adapter_directory_fixture.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

TEST_F(AdapterDirectoryTest, ServesByDirectoryName) {
  adapter("b-adapter", root / "served");
  adapter("a.adapter_1", root / "served");
  fs::create_directories(root / "served" / "empty");
  std::ofstream(root / "served" / "file.txt") << "x";
  adapter(".hidden", root / "served");
  auto directory = open();
  EXPECT_EQ(directory->scan().added, (std::vector<std::string>{"a.adapter_1", "b-adapter"}));
  EXPECT_EQ(engine.registered, (std::map<executor::IdType, std::string>{{1, "a.adapter_1"}, {2, "b-adapter"}}));
  EXPECT_EQ(catalog.find("b-adapter")->adapter_id, 2u);
  EXPECT_NE(catalog.find("b-adapter")->fingerprint, catalog.find("a.adapter_1")->fingerprint);
  EXPECT_EQ(catalog.list().size(), 3u);
  EXPECT_TRUE(directory->scan().added.empty()) << "known ones are not registered again";
}

// The layout of NIM's PEFT source.
TEST_F(AdapterDirectoryTest, NemoArchivesAreServedBesidePeftFiles) {
  const auto archive = [&](const std::string& name, const std::string& file) {
    fs::create_directories(root / "served" / name);
    std::ofstream(root / "served" / name / file) << "an archive";
  };
  archive("llama3-8b-math", "llama3_8b_math.nemo");
  adapter("llama3-8b-math-hf", root / "served");
  archive("llama3-8b-squad", "squad.nemo");
  adapter("llama3-8b-squad-hf", root / "served");
  archive("two", "a.nemo");
  archive("two", "b.nemo");
  archive("both", "a.nemo");
  adapter("both", root / "served");
  archive("none", "a.txt");
  auto directory = open();
  EXPECT_EQ(directory->scan().added,
            (std::vector<std::string>{"llama3-8b-math", "llama3-8b-math-hf", "llama3-8b-squad", "llama3-8b-squad-hf"}));
  fs::remove(root / "served/two/a.nemo");
  fs::remove(root / "served/both/a.nemo");
  EXPECT_EQ(directory->scan().added, (std::vector<std::string>{"both", "two"}));
  fs::remove_all(root / "served/two");
  EXPECT_EQ(directory->scan().removed, std::vector<std::string>{"two"});
}

TEST_F(AdapterDirectoryTest, BrokenOneIsLeftOutAndTriedAgain) {
  adapter("bad", root / "served");
  adapter("good", root / "served");
  engine.broken = "bad";
  auto directory = open();
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"good"});
  EXPECT_EQ(catalog.find("bad"), nullptr);
  engine.broken = "none";
  EXPECT_TRUE(directory->scan().added.empty()) << "unchanged files are not tried again";
  std::ofstream(root / "served" / "bad" / "adapter_model.safetensors") << "mended, and longer";
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"bad"});
}

TEST_F(AdapterDirectoryTest, LinksThatLeadNowhereKeepNobodyOut) {
  adapter("good", root / "served");
  fs::create_symlink("nowhere", root / "served" / "dangling");
  fs::create_symlink("circle", root / "served" / "circle");
  fs::create_symlink(".", root / "served" / "itself");
  fs::create_symlink("circle", adapter("holds_a_circle", root / "served") / "circle");
  auto directory = open();
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"good"});
  adapter("late", root / "served");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"late"});
  fs::remove(root / "served" / "holds_a_circle" / "circle");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"holds_a_circle"});
}

TEST_F(AdapterDirectoryTest, RequestsUseTheAdaptersOwnText) {
  adapter("plain", root / "served");
  adapter("speaking", root / "served");
  speaking = "speaking";
  auto directory = open();
  directory->scan();
  EXPECT_EQ(catalog.find("plain")->text, catalog.base().text);
  EXPECT_EQ(catalog.find("speaking")->text, own);
}

TEST_F(AdapterDirectoryTest, NewOnesAppearOnRefresh) {
  auto directory = open();
  EXPECT_TRUE(directory->scan().added.empty());
  adapter("late", root / "served");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"late"});
}

TEST_F(AdapterDirectoryTest, NewContentOfAKnownName) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  engine.loadAll();
  const auto before = catalog.find("a");
  EXPECT_TRUE(directory->scan().replaced.empty());
  write("a", "weights of a");
  EXPECT_TRUE(directory->scan().replaced.empty()) << "rewritten with what it held";
  EXPECT_EQ(engine.registrations, 1);

  write("a", "better weights");
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"a"});
  const auto after = catalog.find("a");
  EXPECT_EQ(after->adapter_id, before->adapter_id);
  EXPECT_NE(after->fingerprint, before->fingerprint);
  EXPECT_EQ(engine.registrations, 2);
  EXPECT_TRUE(directory->scan().replaced.empty());
}

TEST_F(AdapterDirectoryTest, OtherContentOfTheSameSizeAndTimeIsSeen) {
  const fs::path weights = adapter("a", root / "served") / "adapter_model.safetensors";
  auto directory = open();
  directory->scan();
  const auto time = fs::last_write_time(weights);
  write("a", "weights of b");
  fs::last_write_time(weights, time);
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"a"});
}

TEST_F(AdapterDirectoryTest, ARewrittenOneIsTakenOnceItIsQuiet) {
  const fs::path weights = adapter("a", root / "served") / "adapter_model.safetensors";
  auto directory = open();
  directory->scan();
  write("a", "better weights");
  int64_t age = 0;
  engine.whileReading = [&] { age = ageNs(stampOf(weights).value()); };
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"a"});
  EXPECT_GE(age, 1'000'000'000);
}

TEST_F(AdapterDirectoryTest, ANewTokenizerComesUnderANewId) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  auto request = catalog.find("a");  // it reaches the engine only after the replacement
  engine.loadAll();                  // makes another entry of the same id
  speaking = "a";
  write("a", "weights for another tokenizer");
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"a"});
  EXPECT_EQ(catalog.find("a")->adapter_id, 2u);
  EXPECT_EQ(catalog.find("a")->text, own);
  directory->scan();
  directory->load("b", "a", false);
  EXPECT_TRUE(engine.registered.contains(*request->adapter_id))
      << "requests that the old tokenizer read may still come";
  request.reset();
  directory->scan();
  EXPECT_EQ(engine.registered, (std::map<executor::IdType, std::string>{{2, "a"}, {3, "a"}}));
}

TEST_F(AdapterDirectoryTest, WhatCannotBeServedKeepsItsOldContent) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  const auto before = catalog.find("a");
  engine.broken = "a";
  write("a", "broken weights");
  EXPECT_TRUE(directory->scan().replaced.empty());
  EXPECT_EQ(catalog.find("a"), before);
  engine.broken = "none";
  EXPECT_TRUE(directory->scan().replaced.empty()) << "unchanged files are not tried again";
  write("a", "mended weights");
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"a"});
}

TEST_F(AdapterDirectoryTest, ALoadThatFindsOtherContent) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  engine.loadAll();
  const auto before = catalog.find("a");
  const auto load = engine.loads.at(1);
  write("a", "other weights");
  load();
  EXPECT_NE(catalog.find("a")->fingerprint, before->fingerprint) << "later requests are told";
  EXPECT_EQ(engine.registrations, 2);
  load();
  EXPECT_EQ(engine.registrations, 2) << "that content is known by now";

  speaking = "a";
  write("a", "weights for another tokenizer");
  EXPECT_EQ(errorOf(load), "adapter 'a' was replaced by one with another tokenizer; send the request again");
  EXPECT_EQ(catalog.find("a")->text, own);
  EXPECT_NE(errorOf(load), "");
  EXPECT_EQ(errorOf(engine.loads.at(2)), "");
}

TEST_F(AdapterDirectoryTest, FilesThatChangeBetweenTokenizerAndWeightsAreNotTaken) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  engine.loadAll();
  write("a", "better weights");
  engine.whileReading = [&] { std::ofstream(root / "served" / "a" / "tokenizer.json") << "{}"; };
  EXPECT_TRUE(directory->scan().replaced.empty());
  EXPECT_EQ(engine.registrations, 1);
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"a"});
}

TEST_F(AdapterDirectoryTest, ATokenizerThatComesAfterTheHeadersIsSeenByTheFirstLoad) {
  adapter("a", root / "served");
  engine.whileReading = [&] {
    speaking = "a";
    std::ofstream(root / "served" / "a" / "tokenizer.json") << "{}";
  };
  auto directory = open();
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"a"});
  EXPECT_EQ(errorOf(engine.loads.at(1)),
            "adapter 'a' was replaced by one with another tokenizer; send the request again");
  EXPECT_EQ(catalog.find("a")->text, own);
  EXPECT_EQ(errorOf(engine.loads.at(2)), "");
}

TEST_F(AdapterDirectoryTest, StartingReadsNoAdapterWhole) {
  for (const char* name : {"a", "b", "c"}) adapter(name, root / "served");
  auto directory = open();
  EXPECT_EQ(directory->scan().added.size(), 3u);
  EXPECT_EQ(engine.reads, 0);
  const auto before = catalog.find("a");
  engine.loads.at(1)();
  EXPECT_EQ(engine.reads, 1);
  EXPECT_EQ(catalog.find("a")->fingerprint, "fp_weights of a") << "by content, once that is known";
  EXPECT_EQ(catalog.find("a")->adapter_id, before->adapter_id);
  EXPECT_EQ(catalog.find("a")->created, before->created);
  EXPECT_NE(before->fingerprint, catalog.find("b")->fingerprint);
  EXPECT_TRUE(directory->scan().replaced.empty());
  EXPECT_EQ(engine.registrations, 3);
}

TEST_F(AdapterDirectoryTest, FilesReplacedBeforeTheFirstLoadAreTakenAsTheyAre) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  const auto load = engine.loads.at(1);
  write("a", "other weights");
  load();
  EXPECT_EQ(engine.registrations, 2) << "by the headers that are there now";
  EXPECT_TRUE(directory->scan().replaced.empty());
  engine.loads.at(1)();
  EXPECT_EQ(catalog.find("a")->fingerprint, "fp_other weight");
}

TEST_F(AdapterDirectoryTest, InvalidContentIsRefusedAtItsFirstUseInOneLine) {
  adapter("bad", root / "served");
  adapter("good", root / "served");
  write("bad", "NaN");
  auto directory = open();
  EXPECT_EQ(directory->scan().added.size(), 2u);
  std::ostringstream out;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(makeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
  EXPECT_NE(errorOf(engine.loads.at(1)).find("not finite"), std::string::npos);
  EXPECT_NE(errorOf(engine.loads.at(1)), "") << "of a request that came before";
  EXPECT_TRUE(directory->scan().added.empty()) << "unchanged files are not tried again";
  spdlog::set_default_logger(before);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("adapter left out"), std::string::npos) << text;
  EXPECT_EQ(catalog.find("bad"), nullptr);
  EXPECT_EQ(engine.registered, (std::map<executor::IdType, std::string>{{2, "good"}}));
  EXPECT_EQ(errorOf(engine.loads.at(2)), "") << "others are undisturbed";
  write("bad", "mended");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"bad"});
}

// Repositories in huggingface_hub's layout.
class HubCacheTest : public AdapterDirectoryTest {
 protected:
  fs::path repository(const std::string& name, const std::string& weights) {
    const fs::path dir = root / "served" / name;
    fs::create_directories(dir / "blobs");
    fs::create_directories(dir / "refs");
    std::ofstream(dir / "blobs/1111") << "{}";
    std::ofstream(dir / "blobs/2222") << weights;
    std::ofstream(dir / "refs/main") << "abcd";
    snapshot(dir, "abcd");
    return dir;
  }
  static void snapshot(const fs::path& dir, const std::string& revision) {
    fs::create_directories(dir / "snapshots" / revision);
    fs::create_symlink("../../blobs/1111", dir / "snapshots" / revision / "adapter_config.json");
    fs::create_symlink("../../blobs/2222", dir / "snapshots" / revision / "adapter_model.safetensors");
  }
};

TEST_F(HubCacheTest, LinksThatStayWithinACachesBlobsAreFollowed) {
  const fs::path dir = repository("models--org--math", "weights of math");
  snapshot(dir, "old");
  adapter("plain", root / "served");
  auto directory = open();
  EXPECT_EQ(directory->scan().added, (std::vector<std::string>{"models--org--math", "plain"}));
  engine.loadAll();
  EXPECT_EQ(catalog.find("models--org--math")->fingerprint, "fp_weights of m");
  // Adds a newer revision, as a download does.
  std::ofstream(dir / "blobs/3333") << "newer weights";
  fs::create_directories(dir / "snapshots/efgh");
  fs::create_symlink("../../blobs/1111", dir / "snapshots/efgh/adapter_config.json");
  fs::create_symlink("../../blobs/3333", dir / "snapshots/efgh/adapter_model.safetensors");
  std::ofstream(dir / "refs/main") << "efgh\n";
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"models--org--math"});
}

TEST_F(HubCacheTest, ACachesLinksDoNotLeaveTheirRepository) {
  adapter("secret", root / "served");
  std::ofstream(root / "outside") << "weights of somebody";
  const fs::path one = repository("models--org--one", "weights");
  repository("models--org--two", "weights of two");
  int id = 0;
  for (const char* target :
       {"../../../secret/adapter_model.safetensors", "../../../models--org--two/blobs/2222", "../../../../outside"}) {
    fs::remove(one / "snapshots/abcd/adapter_model.safetensors");
    fs::create_symlink(target, one / "snapshots/abcd/adapter_model.safetensors");
    EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"models--org--two", "secret"})) << target << ++id;
  }
  fs::remove(one / "snapshots/abcd/adapter_model.safetensors");
  fs::create_symlink((root / "outside").string(), one / "blobs/4444");
  fs::create_symlink("../../blobs/4444", one / "snapshots/abcd/adapter_model.safetensors");
  EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"models--org--two", "secret"})) << "a blob that is a link";
  for (const char* main : {"../../models--org--two/snapshots/abcd", "..", "", "none"}) {
    std::ofstream(one / "refs/main") << main;
    EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"models--org--two", "secret"})) << main;
  }
}

TEST_F(HubCacheTest, SnapshotsOfOneRepositoryCanBeTheDirectory) {
  const fs::path dir = repository("models--org--math", "weights of math");
  const auto load_text = [this](const Directory&, WorkMeter&) { return catalog.base().text; };
  AdapterDirectory directory({(dir / "snapshots").string()}, catalog, engine, load_text);
  EXPECT_EQ(directory.scan().added, std::vector<std::string>{"abcd"});
  EXPECT_EQ(errorOf(engine.loads.at(1)), "");
  fs::remove(dir / "refs/main");
  EXPECT_EQ(open()->scan().added, std::vector<std::string>{"models--org--math"}) << "its only snapshot";
  snapshot(dir, "second");
  EXPECT_TRUE(open()->scan().added.empty()) << "which of the two is not said";
}

TEST_F(AdapterDirectoryTest, LinksOutAreRefused) {
  const fs::path outside = adapter("outside", root);
  fs::create_directory_symlink(outside, root / "served" / "link");
  const fs::path inside = adapter("inside", root / "served");
  fs::create_symlink(outside / "adapter_model.safetensors", inside / "extra.bin");
  adapter("real", root / "served");
  fs::create_directory_symlink(root / "served" / "real", root / "served" / "alias");
  fs::create_symlink("../../real/adapter_model.safetensors", adapter("thief", root / "served") / "theirs");
  fs::create_symlink("adapter_model.safetensors", adapter("within", root / "served") / "same");
  EXPECT_EQ(open()->scan().added, (std::vector<std::string>{"real", "within"}));
  EXPECT_EQ(open({.links = Links::kFollow})->scan().added,
            (std::vector<std::string>{"alias", "inside", "link", "real", "thief", "within"}));
}

TEST_F(AdapterDirectoryTest, LoadsAreConfinedToo) {
  const fs::path dir = adapter("a", root / "served");
  adapter("outside", root);
  auto directory = open();
  directory->scan();
  fs::remove(dir / "adapter_model.safetensors");
  fs::create_symlink(root / "outside/adapter_model.safetensors", dir / "adapter_model.safetensors");
  EXPECT_NE(errorOf(engine.loads.at(1)).find("a link that leads"), std::string::npos);
  fs::rename(dir, root / "kept");
  fs::create_directory_symlink(root / "outside", dir);
  EXPECT_NE(errorOf(engine.loads.at(1)).find("a link that leads"), std::string::npos);
}

TEST_F(AdapterDirectoryTest, ARemovedOneEnds) {
  adapter("a", root / "served");
  adapter("b", root / "served");
  auto directory = open();
  directory->scan();
  engine.loadAll();
  fs::rename(root / "served/a", root / "kept");
  const auto request = catalog.find("a");
  EXPECT_EQ(directory->scan().removed, std::vector<std::string>{"a"});
  EXPECT_EQ(catalog.find("a"), nullptr);
  EXPECT_EQ(catalog.list().size(), 2u);
  EXPECT_NE(request, nullptr) << "a request that began with it keeps it";
  EXPECT_FALSE(engine.registered.contains(1)) << "its weights are dropped";
  EXPECT_TRUE(directory->scan().removed.empty());
  fs::rename(root / "kept", root / "served/a");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"a"});
  ASSERT_NE(catalog.find("a"), nullptr);
  EXPECT_EQ(catalog.find("a")->adapter_id, 3u);
}

TEST_F(AdapterDirectoryTest, ARemovedOneGivesItsTextBack) {
  adapter("a", root / "served");
  speaking = "a";
  auto directory = open();
  directory->scan();
  const long held = own.use_count();
  fs::remove_all(root / "served/a");
  directory->scan();
  EXPECT_LT(own.use_count(), held);
  EXPECT_TRUE(engine.registered.empty());
}

TEST_F(AdapterDirectoryTest, AddOnlyAdds) {
  adapter("a", root / "served");
  adapter("b", root / "served");
  auto directory = open({.refresh = AdapterRefresh::kAdd});
  directory->scan();
  engine.loadAll();
  const auto before = catalog.find("a");
  write("a", "better weights");
  fs::remove_all(root / "served/b");
  adapter("late", root / "served");
  const auto found = directory->scan();
  EXPECT_EQ(found.added, std::vector<std::string>{"late"});
  EXPECT_TRUE(found.replaced.empty());
  EXPECT_TRUE(found.removed.empty());
  EXPECT_EQ(catalog.find("a"), before);
  EXPECT_NE(catalog.find("b"), nullptr);
  // After an eviction the old content is not there any more.
  const auto loads = engine.loads;
  loads.at(1)();
  EXPECT_EQ(catalog.find("a")->fingerprint, "fp_better weigh");
  EXPECT_NE(errorOf(loads.at(2)), "");
  EXPECT_EQ(catalog.find("b"), nullptr);
}

TEST_F(AdapterDirectoryTest, ReplaceAddsAndReplaces) {
  adapter("a", root / "served");
  adapter("b", root / "served");
  auto directory = open({.refresh = AdapterRefresh::kReplace});
  directory->scan();
  engine.loadAll();
  const auto before = catalog.find("a");
  write("a", "better weights");
  fs::remove_all(root / "served/b");
  adapter("late", root / "served");
  const auto found = directory->scan();
  EXPECT_EQ(found.added, std::vector<std::string>{"late"});
  EXPECT_EQ(found.replaced, std::vector<std::string>{"a"});
  EXPECT_TRUE(found.removed.empty());
  EXPECT_NE(catalog.find("a")->fingerprint, before->fingerprint);
  EXPECT_NE(catalog.find("b"), nullptr);
  // A removed directory that comes back with other content replaces the adapter.
  adapter("b", root / "served");
  write("b", "other weights");
  EXPECT_EQ(directory->scan().replaced, std::vector<std::string>{"b"});
}

TEST_F(AdapterDirectoryTest, AnAdapterThatVanishedBeforeItsFirstUseLeavesTheList) {
  adapter("a", root / "served");
  adapter("b", root / "served");
  auto directory = open();
  directory->scan();
  fs::remove_all(root / "served/a");
  EXPECT_NE(errorOf(engine.loads.at(1)), "");
  EXPECT_EQ(catalog.find("a"), nullptr);
  EXPECT_EQ(catalog.list().size(), 2u);
  EXPECT_EQ(engine.registered, (std::map<executor::IdType, std::string>{{2, "b"}}));
  fs::remove_all(root / "served/b");
  EXPECT_EQ(directory->scan().removed, std::vector<std::string>{"b"});
  EXPECT_EQ(catalog.list().size(), 1u);
}

TEST_F(AdapterDirectoryTest, ALoadThatFindsNoFilesEndsTheName) {
  for (const char* what : {"", "adapter_config.json", "adapter_model.safetensors"}) {
    SCOPED_TRACE(what);
    engine.registered.clear();
    const fs::path dir = adapter("a", root / "served");
    auto directory = open();
    directory->scan();
    const auto load = engine.loads.at(*catalog.find("a")->adapter_id);
    fs::rename(dir, root / "aside");
    fs::rename(root / "aside", dir);
    fs::remove_all(dir / what);
    if (std::string(what) == "adapter_config.json") fs::remove(dir / "adapter_model.safetensors");
    EXPECT_NE(errorOf(load), "");
    EXPECT_EQ(catalog.find("a"), nullptr);
    EXPECT_TRUE(engine.registered.empty());
    adapter("a", root / "served");
    EXPECT_EQ(directory->scan().added, std::vector<std::string>{"a"});
    catalog.removeAdapter("a");
    fs::remove_all(dir);
  }
}

TEST_F(AdapterDirectoryTest, ADirectoryThatIsBackInAMomentStays) {
  const fs::path dir = adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  fs::rename(dir, root / "aside");
  std::thread back([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    fs::rename(root / "aside", dir);
  });
  EXPECT_TRUE(directory->scan().removed.empty());
  back.join();
  EXPECT_NE(catalog.find("a"), nullptr);
}

TEST_F(AdapterDirectoryTest, FoldersOfManyFilesAreRefusedInOneLine) {
  const fs::path dir = adapter("many", root / "served");
  for (size_t i = 0; i < AdapterDirectory::kMaxFiles; ++i) std::ofstream(dir / std::to_string(i)) << "";
  adapter("good", root / "served");
  EXPECT_EQ(open()->scan().added, std::vector<std::string>{"good"});
}

TEST_F(AdapterDirectoryTest, ManyBrokenOnesMakeFewLines) {
  std::ostringstream out;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(makeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
  for (int i = 0; i < 200; ++i) fs::create_directory(root / "served" / std::to_string(i));
  adapter("good", root / "served");
  auto directory = open();
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"good"});
  directory->scan();
  spdlog::set_default_logger(before);
  const std::string text = out.str();
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 30) << text;
  EXPECT_NE(text.find("180 more adapters are left out"), std::string::npos);
}

TEST_F(AdapterDirectoryTest, AScanEndsEarly) {
  for (int i = 0; i < 10; ++i) adapter(std::to_string(i), root / "served");
  auto directory = open();
  int asked = 0;
  EXPECT_EQ(directory->scan({.stop = [&] { return ++asked > 3; }}).added.size(), 3u);
}

// A tenant swaps its weights for a link to another tenant's while they are read.
TEST_F(AdapterDirectoryTest, NoSwapBringsInWhatIsAnothers) {
  const fs::path dir = adapter("a", root / "served");
  adapter("secret", root / "served");
  std::atomic<bool> stop = false;
  std::thread swapper([&] {
    while (!stop) {
      std::ofstream(root / "plain") << "weights of a";
      fs::rename(root / "plain", dir / "adapter_model.safetensors");
      fs::create_symlink("../secret/adapter_model.safetensors", root / "swap");
      fs::rename(root / "swap", dir / "adapter_model.safetensors");
    }
  });
  const auto top = Directory::open(root / "served", Links::kNone);
  for (int i = 0; i < 3000; ++i) {
    try {
      const Descriptor fd = top->openDirectory("a", Links::kInside)->openFile("adapter_model.safetensors");
      EXPECT_NE(readDescriptor(fd.get(), "x", 100), "weights of secret");
    } catch (const Error&) {
    }
  }
  stop = true;
  swapper.join();
}

TEST_F(AdapterDirectoryTest, NameOfTheBaseIsTaken) {
  adapter("base", root / "served");
  auto directory = open();
  EXPECT_TRUE(directory->scan().added.empty());
  EXPECT_FALSE(catalog.find("base")->adapter_id);
}

TEST_F(AdapterDirectoryTest, MissingDirectory) {
  EXPECT_THROW(AdapterDirectory({(root / "nowhere").string()}, catalog, engine, nullptr), Error);
}

TEST_F(AdapterDirectoryTest, LoadsByPathBesideTheDirectories) {
  adapter("placed", root / "served");
  adapter("one", root / "store");
  adapter("two", root / "store");
  auto directory = open({.refresh = AdapterRefresh::kSync, .allowed_roots = {(root / "store").string()}});
  directory->scan();
  using Loaded = AdapterDirectory::Loaded;
  EXPECT_EQ(directory->load("new", root / "store/one", false), Loaded::kAdded);
  const auto id = catalog.find("new")->adapter_id.value();
  engine.loads[id]();
  EXPECT_EQ(directory->load("new", "two", false), Loaded::kExists);
  EXPECT_EQ(directory->load("new", root / "store/one", true), Loaded::kUnchanged);
  EXPECT_EQ(directory->load("new", "two", true), Loaded::kReplaced);
  EXPECT_EQ(engine.registered[id], "two");
  EXPECT_TRUE(directory->scan().replaced.empty());

  // A replacement that fails changes nothing.
  engine.broken = "one";
  const auto before = catalog.find("new")->fingerprint;
  EXPECT_THROW(directory->load("new", "one", true), Error);
  EXPECT_EQ(catalog.find("new")->fingerprint, before);
  EXPECT_EQ(RegisteringEngine::content(directory->load("new", "two", true) == Loaded::kUnchanged
                                           ? Directory::open(root / "store/two")
                                           : Directory::open(root / "store/one")),
            "weights of two");

  // A loaded adapter ends when its directory is removed.
  fs::remove_all(root / "store/two");
  EXPECT_EQ(directory->scan().removed, std::vector<std::string>{"new"});
  EXPECT_EQ(catalog.find("new"), nullptr);
}

TEST_F(AdapterDirectoryTest, AReplacedAdapterIsReadFromItsOwnDirectoryByEarlierRequests) {
  adapter("one", root / "store");
  adapter("two", root / "store");
  auto directory = open({.allowed_roots = {(root / "store").string()}});
  directory->load("new", "one", false);
  const auto id = catalog.find("new")->adapter_id.value();
  const auto earlier = engine.loads[id];
  directory->load("new", "two", true);
  const auto fingerprint = catalog.find("new")->fingerprint;
  const int reads = engine.reads;
  earlier();
  EXPECT_EQ(engine.reads, reads + 1);
  EXPECT_EQ(catalog.find("new")->fingerprint, fingerprint) << "the earlier content is not recorded for the new one";
}

TEST_F(AdapterDirectoryTest, AnUnloadedAdapterStaysAway) {
  adapter("placed", root / "served");
  auto directory = open();
  directory->scan();
  EXPECT_TRUE(directory->unload("placed"));
  EXPECT_FALSE(directory->unload("placed"));
  EXPECT_FALSE(directory->unload("nobody"));
  EXPECT_TRUE(engine.registered.empty());
  EXPECT_TRUE(directory->scan().added.empty());
  EXPECT_TRUE(directory->scan().added.empty()) << "it is not forgotten that the adapter was unloaded";
  EXPECT_EQ(directory->load("placed", root / "served/placed", false), AdapterDirectory::Loaded::kAdded);
  EXPECT_TRUE(directory->unload("placed"));
  // A directory that was removed and made again is a new adapter.
  fs::remove_all(root / "served/placed");
  directory->scan();
  adapter("placed", root / "served");
  EXPECT_EQ(directory->scan().added, std::vector<std::string>{"placed"});
}

}  // namespace
}  // namespace chorus::server
