// Uploaded adapters on disk: their content, their limit, and that none is left.
#include "server/model/upload_spool.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

class UploadSpoolTest : public ::testing::Test {
 protected:
  UploadSpoolTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-spool-XXXXXX").string();
    dir = mkdtemp(pattern.data());
  }
  ~UploadSpoolTest() override { fs::remove_all(dir); }
  static fs::path weightsOf(const UploadSpool::Upload& upload) {
    return upload.parent->pathOf(upload.name) / "adapter_model.safetensors";
  }
  static std::string contentOf(const fs::path& file) { return readFile(file, 1000); }
  fs::path dir;
};

TEST_F(UploadSpoolTest, TwoUploadsNeverShareAFile) {
  UploadSpool spool(dir, 1000);
  spool.store("{}", std::string(100, 'a'));
  const UploadSpool::Upload one = spool.store("{}", std::string(100, 'b'));
  const UploadSpool::Upload two = spool.store("{}", std::string(100, 'c'));
  EXPECT_EQ(contentOf(weightsOf(one)), std::string(100, 'b'));
  EXPECT_EQ(contentOf(weightsOf(two)), std::string(100, 'c'));
}

TEST_F(UploadSpoolTest, TheLimitHoldsForAllUploadsTogether) {
  UploadSpool spool(dir, 1000);
  std::optional<UploadSpool::Upload> large = spool.store("{}", std::string(800, 'a'));
  EXPECT_THROW(spool.store("{}", std::string(199, 'b')), Error);
  const UploadSpool::Upload small = spool.store("{}", std::string(190, 'b'));
  EXPECT_EQ(spool.usedBytes(), 994U);
  large.reset();
  EXPECT_EQ(spool.usedBytes(), 192U);
  EXPECT_EQ(spool.missingFor(808), 0U);
  EXPECT_EQ(spool.missingFor(900), 92U);
  const UploadSpool::Upload next = spool.store("{}", std::string(806, 'c'));
  EXPECT_EQ(contentOf(weightsOf(next)), std::string(806, 'c'));
}

TEST_F(UploadSpoolTest, TheEndOfTheSpoolLeavesNothing) {
  {
    UploadSpool spool(dir, 1000);
    spool.store("{}", std::string(100, 'a'));
  }
  EXPECT_TRUE(fs::is_empty(dir));
}

}  // namespace
}  // namespace chorus::server
