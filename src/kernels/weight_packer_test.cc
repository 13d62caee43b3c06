#include "kernels/weight_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/aligned_buffer.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

using ::testing::HasSubstr;

// Two calls that meet at a multiple of rowsTogether() fill one weight; bytes() bytes hold it.
TEST(WeightPacker, RowsOfSeveralCallsAreReadBack) {
  const WeightPacker& packer = weightPacker("cpu");
  const int64_t together = packer.rowsTogether(), out = 2 * together + 3, in = 37;
  std::vector<float> values(static_cast<size_t>(out * in));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const AlignedBuffer memory(static_cast<size_t>(packer.bytes(DType::kFloat32, out, in)));
  packer.packRows(values.data(), DType::kFloat32, together, in, 0, memory.data(), nullptr);
  packer.packRows(values.data() + together * in, DType::kFloat32, out - together, in, together, memory.data(), nullptr);
  std::vector<float> row(static_cast<size_t>(in));
  for (int64_t o = 0; o < out; ++o) {
    packer.unpackRow({memory.data(), DType::kFloat32, out, in}, o, row.data());
    EXPECT_EQ(row, std::vector<float>(values.begin() + o * in, values.begin() + (o + 1) * in)) << o;
  }
}

TEST(WeightPacker, ExpertsLieAtTheirStride) {
  const WeightPacker& packer = weightPacker("cpu");
  const PackedWeight first{nullptr, DType::kFloat16, 3, 5};
  const int64_t stride = packer.expertStride(first.format(), first.out, first.in);
  EXPECT_GE(stride, packer.bytes(first.format(), first.out, first.in));
  EXPECT_EQ(stride % 64, 0);
  alignas(64) std::byte memory[4096];
  const PackedWeight at{memory, first.format(), first.out, first.in};
  EXPECT_EQ(packer.expertOf(at, 2).data, memory + 2 * stride);
}

TEST(WeightPacker, SizesBeyondTheAddressSpaceAreRefused) {
  const WeightPacker& packer = weightPacker("cpu");
  constexpr int64_t kLarge = int64_t{1} << 40;
  for (const auto& [out, in] : {std::pair(kLarge, kLarge), std::pair(INT64_MAX, int64_t{1}),
                                std::pair(int64_t{1}, INT64_MAX), std::pair(int64_t{-1}, int64_t{1})}) {
    EXPECT_THAT(errorOf([&, out = out, in = in] { packer.bytes(DType::kFloat32, out, in); }),
                testing::AnyOf(HasSubstr("out of range"), HasSubstr("overflows")))
        << out << " " << in;
  }
}

TEST(WeightPacker, AnUnknownBackendIsRefusedByName) {
  EXPECT_THAT(errorOf([] { weightPacker("abacus"); }), HasSubstr("'abacus'"));
}

}  // namespace
}  // namespace chorus
