// The packed bytes belong to a packing version: later programs of the same version use engines from a cache.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/sha256.h"
#include "engine/packing_version.h"
#include "golden_case.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

struct Packed {
  const char* golden;
  DType dtype;
  const char* hash;  // the first digits of rank0.engine's SHA-256
};

// If this fails because packing was changed on purpose, raise kPackingVersion and update the hashes.
TEST(PackingVersion, SameVersionSameBytes) {
  static_assert(kPackingVersion == 1, "take the hashes of the new version");
  const Packed all[] = {{"plain", DType::kFloat32, "5c93a676b98f93af"},
                        {"plain", DType::kBFloat16, "8eb9c0b7c5d3a9db"},
                        {"tied_bias", DType::kFloat16, "220b32a3335a4d5c"},
                        {"int4_groups", DType::kBFloat16, "2bfd3a3263c54a64"},
                        {"int8_channels", DType::kFloat16, "a1ee0a2c2e9afa09"}};
  for (const Packed& packed : all) {
    const auto engine = testEngine(loadGolden(packed.golden, packed.dtype).directory, packed.dtype);
    Sha256 hash;
    hash.update(MappedFile(engine / "rank0.engine").bytes());
    EXPECT_EQ(hash.hex().substr(0, 16), packed.hash) << packed.golden << " " << dtypeName(packed.dtype);
  }
}

}  // namespace
}  // namespace chorus::test
