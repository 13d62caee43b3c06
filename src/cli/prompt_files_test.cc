#include "cli/prompt_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "cli/output_files.h"
#include "formats/npy.h"

namespace chorus {
namespace {

class PromptFilesTest : public testing::Test {
 protected:
  PromptFilesTest() { std::filesystem::create_directories(dir_); }
  ~PromptFilesTest() override { std::filesystem::remove_all(dir_); }
  std::string refusal(const std::string& name, std::string_view contents) {
    writeFileAtomically(dir_ / name, contents);
    return errorOf([&] { readTokenFile(dir_ / name); });
  }
  std::filesystem::path dir_ =
      std::filesystem::temp_directory_path() / ("chorus_prompt_files_test_" + std::to_string(::getpid()));
};

TEST_F(PromptFilesTest, ReadsCsvAndPaddedNpy) {
  writeFileAtomically(dir_ / "p.csv", "1,2, 3\n7\n");
  EXPECT_THAT(readTokenFile(dir_ / "p.csv"), testing::ElementsAre(std::vector{1, 2, 3}, std::vector{7}));
  const std::vector<int32_t> padded{4, 5, 6, 8, -1, -1};
  writeFileAtomically(dir_ / "p.npy", npyBytes(DType::kInt32, std::vector<int64_t>{2, 3}, padded.data()));
  EXPECT_THAT(readTokenFile(dir_ / "p.npy"), testing::ElementsAre(std::vector{4, 5, 6}, std::vector{8}));
}

TEST_F(PromptFilesTest, RefusesWhatIsNoPrompt) {
  EXPECT_THAT(refusal("a.csv", "1,x\n"), testing::HasSubstr("line 1"));
  EXPECT_THAT(refusal("b.csv", "1\n\n2\n"), testing::HasSubstr("line 2: the prompt is empty"));
  EXPECT_THAT(refusal("c.csv", ""), testing::HasSubstr("no prompts"));
  const std::vector<int32_t> holes{4, -1, 6};
  EXPECT_THAT(refusal("d.npy", npyBytes(DType::kInt32, std::vector<int64_t>{1, 3}, holes.data())),
              testing::HasSubstr("row 0 column 2"));
  EXPECT_THAT(refusal("e.npy", npyBytes(DType::kInt32, std::vector<int64_t>{3}, holes.data())),
              testing::HasSubstr("[prompts, longest]"));
}

TEST_F(PromptFilesTest, OutputsArePaddedWithMinusOne) {
  writeTokensNpy(dir_ / "o.npy", {{1, 2}, {}}, 3);
  const MappedFile file(dir_ / "o.npy");
  const NpyArray array = parseNpy(file.bytes(), "o");
  EXPECT_THAT(array.shape, testing::ElementsAre(2, 1, 3));
  std::vector<int32_t> values(6);
  std::memcpy(values.data(), array.data.data(), 24);
  EXPECT_THAT(values, testing::ElementsAre(1, 2, -1, -1, -1, -1));
}

TEST_F(PromptFilesTest, LogProbsAreZeroAfterTheEnd) {
  writeLogProbsNpy(dir_ / "l.npy", {{-1.5f}, {-2.0f, -0.5f}}, 2);
  const MappedFile file(dir_ / "l.npy");
  const NpyArray array = parseNpy(file.bytes(), "l");
  EXPECT_THAT(array.shape, testing::ElementsAre(2, 1, 2));
  std::vector<float> values(4);
  std::memcpy(values.data(), array.data.data(), 16);
  EXPECT_THAT(values, testing::ElementsAre(-1.5f, 0.0f, -2.0f, -0.5f));
  writeCumLogProbsNpy(dir_ / "c.npy", {-1.5f, -2.5f});
  const MappedFile sums(dir_ / "c.npy");
  EXPECT_THAT(parseNpy(sums.bytes(), "c").shape, testing::ElementsAre(2, 1));
}

}  // namespace
}  // namespace chorus
