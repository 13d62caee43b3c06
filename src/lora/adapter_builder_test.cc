#include "lora/adapter_builder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

class CopiedBytesTest : public testing::Test {
 protected:
  CopiedBytesTest() {
    std::string name = (fs::temp_directory_path() / "chorus_adapter_builder_XXXXXX").string();
    path_ = fs::path(mkdtemp(name.data())) / "a.safetensors";
  }
  ~CopiedBytesTest() override { fs::remove_all(path_.parent_path()); }

  // The result for a file of tensors of 100 elements, parsed with and without its values. moved: bytes that are put
  // before the tensors.
  uint64_t of(const std::vector<DType>& dtypes, size_t moved = 0) const {
    std::vector<SafetensorsWriter::Declaration> tensors;
    for (const DType dtype : dtypes) tensors.push_back({"t" + std::to_string(tensors.size()), dtype, {100}});
    SafetensorsWriter writer(path_, tensors);
    const std::vector<std::byte> zeros(800);
    for (size_t i = 0; i < tensors.size(); ++i) {
      writer.write(tensors[i].name, 0, std::span(zeros).first(100 * dtypeSize(dtypes[i])));
    }
    writer.finish();
    std::ifstream stream(path_, std::ios::binary);
    std::string file((std::istreambuf_iterator<char>(stream)), {});
    file.insert(file.find('}', file.rfind("data_offsets")) + 2, moved, ' ');
    file[0] = static_cast<char>(file[0] + static_cast<char>(moved));
    const auto bytes = std::as_bytes(std::span(file));
    const uint64_t copied = copiedBytes(parseTensorFile(bytes, path_, nullptr));
    EXPECT_EQ(copiedBytes(parseSafetensorsHeader(bytes, bytes.size(), path_)), copied);
    return copied;
  }

  fs::path path_;
};

TEST_F(CopiedBytesTest, ValuesOfOneTypeAreUsedInPlace) {
  EXPECT_EQ(of({DType::kFloat32, DType::kFloat32}), 0U);
  EXPECT_EQ(of({DType::kBFloat16}), 0U);
  EXPECT_EQ(of({DType::kBFloat16, DType::kBFloat16}, 1), 400U) << "they are not aligned";
}

TEST_F(CopiedBytesTest, OthersBecomeFloat32) {
  EXPECT_EQ(of({DType::kFloat64}), 100 * (4 + 8U)) << "and one tensor while it is converted";
  EXPECT_EQ(of({DType::kFloat32, DType::kBFloat16}), 100 * (4 + 4 + 4U));
}

}  // namespace
}  // namespace chorus
