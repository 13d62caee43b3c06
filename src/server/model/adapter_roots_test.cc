#include "server/model/adapter_roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "base/testing/error_of.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

class AdapterRootsTest : public ::testing::Test {
 protected:
  AdapterRootsTest() : before_(spdlog::default_logger()) {
    std::string pattern = (fs::temp_directory_path() / "chorus-roots-XXXXXX").string();
    root_ = fs::canonical(mkdtemp(pattern.data()));
    spdlog::set_default_logger(makeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~AdapterRootsTest() override {
    spdlog::set_default_logger(before_);
    fs::remove_all(root_);
  }
  // Returns the path of a directory that holds the file.
  std::string holding(const std::string& directory, const std::string& file) {
    fs::create_directories(root_ / directory);
    std::ofstream(root_ / directory / file) << "{}";
    return (root_ / directory).string();
  }
  std::string adapter(const std::string& directory) { return holding(directory, "adapter_config.json"); }
  std::string path(const std::string& name) { return (root_ / name).string(); }
  using Places = std::vector<AdapterPlace>;
  static Strings namesOf(const Places& places) { return AdapterRoots(places, Links::kInside).names(100).names; }
  static std::string refusalOf(const Places& places) {
    return errorOf([&] { AdapterRoots(places, Links::kInside); });
  }

  fs::path root_;
  std::ostringstream log_;

 private:
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(AdapterRootsTest, EachSubdirectoryIsAnAdapter) {
  adapter("served/b");
  adapter("served/a");
  adapter("served/.hidden");
  const AdapterRoots roots({path("served")}, Links::kInside);
  EXPECT_EQ(roots.names(100).names, (Strings{"a", "b"}));
  EXPECT_TRUE(roots.open("a")->hasName("adapter_config.json"));
  EXPECT_EQ(roots.pathOf("b"), root_ / "served/b");
  EXPECT_EQ(roots.text(), path("served"));
  EXPECT_FALSE(roots.names(1).complete);
  roots.warnOfNames();
  EXPECT_EQ(log_.str(), "");
}

TEST_F(AdapterRootsTest, NamePathWorksForLoraDir) {
  const std::string one = adapter("adapters/one"), two = adapter("adapters/two");
  const AdapterRoots roots({"math=" + one, "law=" + two}, Links::kInside);
  EXPECT_EQ(roots.names(100).names, (Strings{"law", "math"}));
  EXPECT_TRUE(roots.open("math")->hasName("adapter_config.json"));
  EXPECT_EQ(roots.pathOf("law"), two);
  EXPECT_THROW(roots.open("one"), Error) << "it has another name";
  EXPECT_EQ(namesOf({path("adapters"), "math=" + one}), (Strings{"math", "one", "two"}))
      << "beside a directory of them";
}

TEST_F(AdapterRootsTest, APathThatExistsAsItIsWrittenIsAPath) {
  adapter("run=3/one");
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  EXPECT_EQ(namesOf({"run=3"}), Strings{"one"});
  EXPECT_EQ(namesOf({"name=run=3/one"}), Strings{"name"});
  fs::current_path(before);
  EXPECT_EQ(namesOf({path("run=3")}), Strings{"one"}) << "a slash before the sign ends no name";
}

TEST_F(AdapterRootsTest, ADirectoryThatIsItselfAnAdapterIsServedAsOne) {
  EXPECT_EQ(namesOf({adapter("mine")}), Strings{"mine"});
  EXPECT_EQ(namesOf({path("mine") + "/"}), Strings{"mine"});
  EXPECT_EQ(namesOf({holding("nemo", "weights.nemo")}), Strings{"nemo"});
  EXPECT_EQ(namesOf({holding("tensors", "model.lora_weights.npy")}), Strings{"tensors"});
}

TEST_F(AdapterRootsTest, ANemoFileIsAnAdapter) {
  holding("files", "one.nemo");
  holding("files", "two.nemo");
  holding("files", "tokenizer.json");
  const AdapterRoots roots({path("files/one.nemo"), "math=" + path("files/two.nemo")}, Links::kInside);
  EXPECT_EQ(roots.names(100).names, (Strings{"math", "one"}));
  EXPECT_EQ(roots.pathOf("math"), root_ / "files/two.nemo");
  EXPECT_EQ(roots.open("math")->names(10).names, Strings{"two.nemo"}) << "its neighbours are other adapters'";
  EXPECT_FALSE(roots.open("math")->hasName("tokenizer.json"));
  roots.warnOfNames();
  EXPECT_EQ(log_.str(), "");
  fs::remove(root_ / "files/one.nemo");
  EXPECT_THAT(errorOf([&] { roots.open("one"); }), HasSubstr(path("files/one.nemo")));
  EXPECT_THAT(refusalOf({path("files/tokenizer.json")}), HasSubstr("neither a directory nor a .nemo file"));
  EXPECT_THAT(refusalOf({path("files/one.nemo")}), HasSubstr("No such file"));
}

TEST_F(AdapterRootsTest, ALinkToANemoFileIsFollowedAnewWhereLinksAre) {
  holding("v7", "weights.nemo");
  fs::create_symlink("v7/weights.nemo", root_ / "now.nemo");
  const AdapterRoots inside({path("now.nemo")}, Links::kInside), follow({path("now.nemo")}, Links::kFollow);
  EXPECT_EQ(inside.names(10).names, Strings{"now"});
  EXPECT_EQ(inside.pathOf("now"), root_ / "v7/weights.nemo");
  EXPECT_EQ(follow.open("now")->readFile("now.nemo", 10), "{}");
  // Whoever may write the directory cannot put a link in the place of the file.
  holding("other", "secret.nemo");
  fs::remove(root_ / "v7/weights.nemo");
  fs::create_symlink("../other/secret.nemo", root_ / "v7/weights.nemo");
  EXPECT_THROW(inside.open("now")->readFile("weights.nemo", 10), Error);
}

TEST_F(AdapterRootsTest, ANemoFileOfAHuggingFaceCacheIsALinkToABlob) {
  holding("cache/models--t--a/blobs", "1234");
  fs::create_directories(root_ / "cache/models--t--a/snapshots/rev");
  fs::create_symlink("../../blobs/1234", root_ / "cache/models--t--a/snapshots/rev/math.nemo");
  const AdapterRoots roots({path("cache/models--t--a/snapshots/rev/math.nemo")}, Links::kInside);
  EXPECT_EQ(roots.open("math")->readFile("math.nemo", 10), "{}");
}

// Tenants can give their entries in a directory of adapters any name.
TEST_F(AdapterRootsTest, NoEntryOfATenantMakesOneAdapterOfAll) {
  adapter("served/a");
  fs::create_directories(root_ / "served/acme.nemo");
  fs::create_symlink("a/adapter_config.json", root_ / "served/model.lora_weights.npy");
  EXPECT_EQ(namesOf({path("served")}), (Strings{"a", "acme.nemo", "model.lora_weights.npy"}));
  holding("served", "adapter_config.json");
  const AdapterRoots roots({path("served")}, Links::kInside);
  EXPECT_THAT(roots.names(100).names, testing::Contains("a"));
  roots.warnOfNames();
  EXPECT_THAT(log_.str(), HasSubstr("has adapter files itself"));
}

TEST_F(AdapterRootsTest, AFileHidesNoAdapterOfALaterDirectory) {
  holding("first", "same");
  adapter("second/same");
  const AdapterRoots roots({path("first"), path("second")}, Links::kInside);
  EXPECT_EQ(roots.pathOf("same"), root_ / "second/same");
  EXPECT_TRUE(roots.open("same")->hasName("adapter_config.json"));
}

TEST_F(AdapterRootsTest, ALinkNamesTheAdapterAndIsFollowedAnewWhereLinksAre) {
  adapter("releases/v7");
  adapter("releases/v8");
  fs::create_symlink("releases/v7", root_ / "support");
  EXPECT_EQ(namesOf({path("support")}), Strings{"support"});
  const AdapterRoots inside({path("support")}, Links::kInside), follow({path("support")}, Links::kFollow);
  fs::remove(root_ / "support");
  fs::create_symlink("releases/v8", root_ / "support");
  std::ofstream(root_ / "releases/v8/new") << "";
  EXPECT_FALSE(inside.open("support")->hasName("new"));
  EXPECT_TRUE(follow.open("support")->hasName("new"));
}

TEST_F(AdapterRootsTest, ARepositoryOfAHuggingFaceCacheIsHeldOpen) {
  holding("cache/models--t--a/blobs", "1234");
  holding("cache/victim", "adapter_config.json");
  fs::create_directories(root_ / "cache/models--t--a/snapshots/rev");
  fs::create_symlink("../../blobs/1234", root_ / "cache/models--t--a/snapshots/rev/adapter_config.json");
  const std::string repository = path("cache/models--t--a");
  EXPECT_EQ(namesOf({repository}), Strings{"models--t--a"});
  EXPECT_EQ(namesOf({repository + "/snapshots"}), Strings{"rev"});
  const AdapterRoots roots({repository + "/snapshots/rev"}, Links::kInside);
  EXPECT_EQ(roots.open("rev")->readFile("adapter_config.json", 10), "{}");
  // Another directory replaces the repository; its links lead to a neighbour.
  fs::rename(repository, root_ / "cache/moved");
  fs::create_directory_symlink(".", repository);
  fs::create_directories(root_ / "cache/snapshots/rev");
  fs::create_symlink("../../victim/adapter_config.json", root_ / "cache/snapshots/rev/adapter_config.json");
  std::ofstream(root_ / "cache/victim/adapter_config.json") << "secret";
  EXPECT_EQ(roots.open("rev")->readFile("adapter_config.json", 10), "{}");
}

TEST_F(AdapterRootsTest, ADirectoryWithoutAdaptersIsLogged) {
  fs::create_directories(root_ / "empty/sub");
  EXPECT_EQ(namesOf({path("empty")}), Strings{"sub"});
  AdapterRoots({path("empty")}, Links::kInside).warnOfNames();
  EXPECT_THAT(log_.str(), HasSubstr(path("empty") + ": no adapter found"));
  const std::string log = log_.str();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

TEST_F(AdapterRootsTest, ARefusalNamesTheFlagThatGaveThePlace) {
  EXPECT_THAT(refusalOf({AdapterPlace("math=" + path("nowhere"), "--lora_modules")}),
              testing::StartsWith("--lora_modules math="));
  EXPECT_THAT(refusalOf({path("nowhere")}), testing::StartsWith("--lora_dir "));
}

TEST_F(AdapterRootsTest, PathsThatAreNoDirectoryAndBadNamesAreRefused) {
  EXPECT_THAT(refusalOf({path("nowhere")}), HasSubstr("--lora_dir " + path("nowhere")));
  EXPECT_THAT(refusalOf({"math=" + path("nowhere")}), HasSubstr("No such file"));
  const std::string one = adapter("one");
  EXPECT_THAT(refusalOf({"=" + one}), HasSubstr("cannot be a model name"));
  EXPECT_THAT(refusalOf({".x=" + one}), HasSubstr("cannot be a model name"));
  EXPECT_EQ(refusalOf({"org/x=" + one}),
            "--lora_dir org/x=" + one + ": an adapter's name cannot contain a slash; use NAME=" + one);
  EXPECT_THAT(refusalOf({AdapterPlace("org/x=" + path("nowhere"), "--lora_modules")}),
              HasSubstr("cannot contain a slash"));
  EXPECT_THAT(refusalOf({"org/x=" + path("nowhere")}), HasSubstr("No such file")) << "may be the path of a directory";
  EXPECT_THAT(refusalOf({one, "one=" + one}), HasSubstr("another adapter has the name 'one'"));
}

TEST_F(AdapterRootsTest, ANameInSeveralDirectoriesIsServedFromTheFirstAndLogged) {
  adapter("first/same");
  adapter("second/same");
  adapter("second/other");
  const AdapterRoots roots({path("first"), path("second")}, Links::kInside);
  EXPECT_EQ(roots.names(100).names, (Strings{"other", "same"}));
  EXPECT_EQ(roots.pathOf("same"), root_ / "first/same");
  EXPECT_EQ(roots.pathOf("other"), root_ / "second/other");
  roots.warnOfNames();
  EXPECT_THAT(log_.str(), HasSubstr("subdirectory same is not served"));
}

TEST_F(AdapterRootsTest, NoLinkTakesTheAdaptersPlace) {
  const std::string one = adapter("adapters/one");
  const AdapterRoots roots({"math=" + one}, Links::kInside);
  fs::rename(one, path("away"));
  EXPECT_TRUE(roots.names(100).names.empty());
  fs::create_directory_symlink(path("away"), one);
  EXPECT_THROW(roots.open("math"), Error);
}

TEST(ServableName, Rules) {
  EXPECT_TRUE(isServableName("llama3-8b_math.v1"));
  EXPECT_TRUE(isServableName("grün"));
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string(".x"), std::string("a/b"), std::string("a\\b"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\xff"), std::string(256, 'a')}) {
    EXPECT_FALSE(isServableName(bad)) << bad;
  }
}

TEST_F(AdapterRootsTest, LocatesPathsBeneathAllowedDirectories) {
  adapter("served/a");
  adapter("allowed/deep/b");
  adapter("allowed2/c");
  adapter("secret/s");
  fs::create_directory_symlink(root_ / "secret", root_ / "allowed/way");
  fs::create_directory_symlink(root_ / "allowed", root_ / "alias");
  const AdapterRoots roots({path("served")}, Links::kInside, {path("alias")});
  const auto beneath = [&](const std::string& text) { return roots.locate(text).beneath; };
  EXPECT_EQ(beneath(path("served/a")), "a");
  EXPECT_EQ(beneath(path("allowed/deep/b")), "deep/b");
  EXPECT_EQ(beneath(path("alias//deep/./b/")), "deep/b") << "as the operator wrote the directory";
  EXPECT_EQ(beneath("deep/b"), "deep/b");
  for (const std::string& text :
       {path("secret/s"), path("allowed2/c"), path("allowed"), path("allowed/"), std::string("/"), std::string("."),
        std::string(), path("allowed/../secret/s"), std::string("way/s"), path("allowed/way/s"), std::string("a\0b", 3),
        std::string(5000, 'a')}) {
    EXPECT_THAT(errorOf([&] { roots.locate(text); }), testing::StartsWith("the adapter's path ")) << text;
  }
  EXPECT_EQ(errorOf([&] { roots.locate("absent"); }), "there is no such directory");
  EXPECT_THAT(errorOf([&] { AdapterRoots({}, Links::kInside, {path("absent")}); }),
              testing::StartsWith("--lora_allowed_roots "));
}

}  // namespace
}  // namespace chorus::server
