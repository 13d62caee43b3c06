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

// Values next to the bounds, converted.
TEST(AdapterValues, AreFiniteAsTheConvertedValuesAre) {
  const auto expectAgreement = [](auto bits, DType from, DType to) {
    // Not at the first place, and with a sign.
    std::vector<decltype(bits)> values(40'000);
    values[39'998] = bits;
    values[39'999] = static_cast<decltype(bits)>(bits | (decltype(bits){1} << (8 * sizeof(bits) - 1)));
    std::vector<std::byte> converted(values.size() * dtypeSize(to));
    convertElements(values.data(), from, converted.data(), to, values.size());
    const auto bytes = std::as_bytes(std::span(values));
    EXPECT_EQ(allFiniteAs(bytes, from, to), allFinite(converted, to))
        << dtypeName(from) << ' ' << dtypeName(to) << ' ' << bits;
    return allFinite(converted, to);
  };
  for (const auto& [bound, to] : {std::pair(0x7F7F8000U, DType::kBFloat16), std::pair(0x477FF000U, DType::kFloat16)}) {
    int finite = 0;
    for (uint32_t bits = bound - 3; bits < bound + 3; ++bits)
      finite += expectAgreement(bits, DType::kFloat32, to) ? 1 : 0;
    EXPECT_EQ(finite, 3);
    expectAgreement(bound, DType::kFloat32, DType::kFloat32);
  }
  int finite = 0;
  for (uint16_t bits = 0x477D; bits < 0x4783; ++bits) {
    finite += expectAgreement(bits, DType::kBFloat16, DType::kFloat16) ? 1 : 0;
  }
  EXPECT_EQ(finite, 3);
  expectAgreement(uint16_t{0x7BFF}, DType::kFloat16, DType::kBFloat16);
  expectAgreement(uint16_t{0x7BFF}, DType::kFloat16, DType::kFloat16);
}

}  // namespace
}  // namespace chorus
