#include "server/model/adapter_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include <spdlog/sinks/ostream_sink.h>

#include "base/file.h"
#include "base/log.h"
#include "base/testing/error_of.h"
#include "base/testing/eventually.h"
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
  std::this_thread::sleep_for(2 * std::chrono::nanoseconds(kFileClockTickNs));  // another time of the change
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

// Returns what the scans find until one of them finds something. A failed attempt is repeated after 16 times as long as
// it took.
AdapterDirectory::Found scanUntilFound(AdapterDirectory& directory) {
  AdapterDirectory::Found found;
  eventually([&] {
    found = directory.scan();
    return !found.added.empty() || !found.replaced.empty();
  });
  return found;
}

TEST_F(AdapterDirectoryTest, AShortageThatPassesIsNoRefusal) {
  adapter("a", root / "served");
  auto directory = open();
  directory->scan();
  const auto before = catalog.find("a");
  refusing = "a";
  refusal = ErrorCode::kExhausted;
  write("a", "better weights");
  EXPECT_TRUE(directory->scan().replaced.empty());
  EXPECT_EQ(catalog.find("a"), before);
  refusing = "new";
  EXPECT_EQ(scanUntilFound(*directory).replaced, std::vector<std::string>{"a"});
  adapter("new", root / "served");
  EXPECT_TRUE(directory->scan().added.empty());
  refusing = "none";
  EXPECT_EQ(scanUntilFound(*directory).added, std::vector<std::string>{"new"});
}

TEST_F(AdapterDirectoryTest, ADirectoryThatWasAwayDuringItsRegistrationIsNotRefused) {
  const fs::path dir = adapter("a", root / "served");
  auto directory = open();
  engine.whileReading = [&] {
    fs::rename(dir, root / "aside");
    fail(ErrorCode::kNotFound, "{}: no such directory", dir.string());
  };
  EXPECT_TRUE(directory->scan().added.empty());
  fs::rename(root / "aside", dir);
  EXPECT_EQ(scanUntilFound(*directory).added, std::vector<std::string>{"a"});
}

TEST_F(AdapterDirectoryTest, AFailedAttemptThatTookLongIsNotRepeatedSoon) {
  adapter("slow", root / "served");
  auto directory = open();
  refusing = "slow";
  refusal = ErrorCode::kExhausted;
  reading_time = std::chrono::milliseconds(100);
  EXPECT_TRUE(directory->scan().added.empty());
  const auto first_end = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(directory->scan().added.empty());
  const int attempts = texts_read;
  // It is due again after 16 times as long as it took. Then the test was held up.
  if (std::chrono::steady_clock::now() - first_end < 16 * reading_time) {
    EXPECT_EQ(attempts, 1);
  }
  write("slow", "other weights");
  directory->scan();
  EXPECT_EQ(texts_read, attempts + 1) << "changed files are tried at once";
}

TEST_F(AdapterDirectoryTest, LargeHeadersAreLeftUntilTheOthersAreRead) {
  for (const char* name : {"a", "large", "z"}) adapter(name, root / "served");
  engine.header_bytes["large"] = size_t{4} << 20;
  auto directory = open({.refresh = AdapterRefresh::kSync});
  AdapterDirectory::Found found = directory->scan({.leave_slow = true});
  EXPECT_EQ(found.added, (std::vector<std::string>{"a", "z"}));
  EXPECT_EQ(directory->readTexts(found), 0u);
  EXPECT_EQ(found.added, (std::vector<std::string>{"a", "z", "large"}));

  write("large", "other weights");
  found = directory->scan({.leave_slow = true});
  EXPECT_TRUE(found.replaced.empty());
  eventually([&] {  // until its files have been left alone
    directory->scan({.leave_slow = true});
    directory->readTexts(found);
    return !found.replaced.empty();
  });
  EXPECT_EQ(found.replaced, std::vector<std::string>{"large"});

  EXPECT_EQ(open()->scan({.defer_texts = true}).added.size(), 3u) << "nothing is left while the server starts";
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
  const int texts_before = texts_read;
  EXPECT_EQ(errorOf(load), "adapter 'a' was replaced by one with another tokenizer; send the request again");
  EXPECT_EQ(texts_read, texts_before) << "other loads would wait for it";
  EXPECT_EQ(catalog.find("a")->text, nullptr);
  AdapterDirectory::Found found;
  EXPECT_EQ(directory->readTexts(found), 0u);
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
  AdapterDirectory::Found found;
  EXPECT_EQ(directory->readTexts(found), 0u);
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
  const size_t rest = text.find("180 more adapters are left out or still served with their old content: ");
  ASSERT_NE(rest, std::string::npos) << text;
  const std::string line = text.substr(rest, text.find('\n', rest) - rest);
  EXPECT_EQ(std::count(line.begin(), line.end(), ','), 100) << line;
  EXPECT_TRUE(line.ends_with(", ...")) << line;
}

TEST_F(AdapterDirectoryTest, BrokenOnesBeyondTheFirstAreNamed) {
  std::ostringstream out;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(makeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
  spdlog::default_logger()->set_level(spdlog::level::debug);
  const std::string odd = "z\n" + std::string(200, 'x');
  for (int i = 10; i < 32; ++i) fs::create_directory(root / "served" / std::to_string(i));
  fs::create_directory(root / "served" / odd);
  open()->scan();
  spdlog::set_default_logger(before);
  const std::string text = out.str();
  EXPECT_THAT(
      text, testing::HasSubstr("3 more adapters are left out or still served with their old content: 30, 31, z\\nxx"));
  EXPECT_THAT(text, testing::HasSubstr("served/31: ")) << "the reason, for debugging";
}

TEST_F(AdapterDirectoryTest, AScanEndsEarly) {
  for (int i = 0; i < 10; ++i) adapter(std::to_string(i), root / "served");
  auto directory = open();
  int asked = 0;
  EXPECT_EQ(directory->scan({.stop = [&] { return ++asked > 3; }}).added.size(), 3u);
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

}  // namespace
}  // namespace chorus::server
