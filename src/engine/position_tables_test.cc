#include "engine/position_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/rope_table.h"
#include "kernels/forwarding_backend.h"

namespace chorus {
namespace {

// Records the largest piece of host memory that is uploaded at once.
class UploadRecorder : public ForwardingBackend {
 public:
  UploadRecorder() : ForwardingBackend(createBackend({.name = "reference"})) {}
  void upload(void* device, const void* host, size_t bytes, Stream stream) override {
    largest_ = std::max(largest_, bytes);
    inner().upload(device, host, bytes, stream);
  }
  size_t allocated() { return inner().allocatedBytes(); }
  size_t largest() const { return largest_; }

 private:
  size_t largest_ = 0;
};

TEST(PositionTablesTest, HostMemoryIsBoundedAndTheTablesAreWhole) {
  constexpr int64_t kPositions = 100'003, kPairs = 4;
  ModelSpec spec;
  spec.layers.resize(2);
  spec.layers[0].attention.rope = {.kind = RopeKind::kNeox, .dims = 2 * kPairs};
  spec.layers[0].attention.query_scaling = {.beta = 0.5, .length = 100};
  spec.layers[1].attention.alibi = {.heads = 8, .first = 2, .count = 3};
  UploadRecorder backend;
  const DevicePositionTables tables(spec, kPositions, backend);
  EXPECT_EQ(static_cast<int64_t>(backend.allocated()), DevicePositionTables::bytes(spec, kPositions));
  EXPECT_LE(backend.largest(), size_t{1} << 18);

  const auto read = [&](const float* device, int64_t count) {
    std::vector<float> host(static_cast<size_t>(count));
    backend.download(host.data(), device, host.size() * sizeof(float), {});
    return host;
  };
  HostRopeTable expected;
  RopeTableMaker(spec.layers[0].attention.rope, kPositions).make(0, kPositions, expected);
  const PositionTables& first = tables.ofLayers().at(0);
  EXPECT_EQ(read(first.rope.cos, kPositions * kPairs), expected.cos);
  EXPECT_EQ(read(first.rope.sin, kPositions * kPairs), expected.sin);
  EXPECT_EQ(read(first.query_scales, kPositions),
            makeQueryScales(spec.layers[0].attention.query_scaling, 0, kPositions));
  EXPECT_EQ(read(tables.ofLayers().at(1).slopes, 3), alibiSlopes(spec.layers[1].attention.alibi));
}

}  // namespace
}  // namespace chorus
