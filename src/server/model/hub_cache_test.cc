#include "server/model/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/testing/error_of.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class HubModelTest : public ::testing::Test {
 protected:
  HubModelTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-hub-XXXXXX").string();
    root_ = fs::canonical(mkdtemp(pattern.data()));
    repository_ = root_ / "models--org--some-model";
    fs::create_directories(repository_ / "snapshots/aa");
    fs::create_directories(repository_ / "snapshots/bb");
    fs::create_directories(repository_ / "refs");
    std::ofstream(repository_ / "refs/main") << "bb\n";
  }
  ~HubModelTest() override { fs::remove_all(root_); }

  fs::path root_, repository_;
};

TEST_F(HubModelTest, ARepositoryStandsForTheSnapshotOfRefsMain) {
  const fs::path snapshot = repository_ / "snapshots/bb";
  EXPECT_EQ(hubSnapshotOf(repository_), snapshot);
  EXPECT_EQ(hubSnapshotOf(repository_.string() + "/"), snapshot);
  EXPECT_EQ(hubSnapshotOf(repository_ / "snapshots"), snapshot);
  fs::create_symlink(repository_.filename(), root_ / "link");
  EXPECT_EQ(hubSnapshotOf(root_ / "link"), snapshot);
  fs::remove(repository_ / "refs/main");
  EXPECT_THAT(errorOf([&] { hubSnapshotOf(repository_); }), HasSubstr("several snapshots"));
}

TEST_F(HubModelTest, OtherPathsStandForThemselves) {
  for (const fs::path& path : {root_, repository_ / "snapshots/aa", root_ / "none", fs::path("org/name"), fs::path()}) {
    EXPECT_EQ(hubSnapshotOf(path), path);
  }
}

TEST_F(HubModelTest, TheNameOfTheModelIsInTheRepositorysName) {
  EXPECT_EQ(hubModelName(repository_), "org/some-model");
  EXPECT_EQ(hubModelName(repository_ / "snapshots/aa/"), "org/some-model");
  EXPECT_EQ(hubModelName(repository_ / "snapshots"), "org/some-model");
  fs::create_directories(root_ / "models--gpt2/snapshots");
  EXPECT_EQ(hubModelName(root_ / "models--gpt2"), "gpt2");
  EXPECT_EQ(hubModelName(root_), std::nullopt);
  EXPECT_EQ(hubModelName(repository_ / "blobs"), std::nullopt);
  fs::create_directories(root_ / "models--is--no-repository");
  EXPECT_EQ(hubModelName(root_ / "models--is--no-repository"), std::nullopt);
}

}  // namespace
}  // namespace chorus::server
