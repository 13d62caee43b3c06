#include "engine/position_tables.h"

#include <algorithm>

#include "engine/rope_table.h"

namespace chorus {
namespace {

constexpr int64_t kPieceFloats = int64_t{1} << 16;

std::vector<AlibiSpec> alibiSpecs(const ModelSpec& spec) {
  std::vector<AlibiSpec> all;
  for (const LayerSpec& layer : spec.layers) {
    const AlibiSpec& alibi = layer.attention.alibi;
    if (alibi.heads > 0 && std::find(all.begin(), all.end(), alibi) == all.end()) all.push_back(alibi);
  }
  return all;
}
std::vector<QueryScaling> queryScalings(const ModelSpec& spec) {
  std::vector<QueryScaling> all;
  for (const LayerSpec& layer : spec.layers) {
    const QueryScaling& scaling = layer.attention.query_scaling;
    if (scaling.beta != 0 && std::find(all.begin(), all.end(), scaling) == all.end()) all.push_back(scaling);
  }
  return all;
}
size_t indexOf(const auto& list, const auto& value) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), value) - list.begin());
}
}  // namespace

DevicePositionTables::DevicePositionTables(const ModelSpec& spec, int64_t positions, Backend& backend) {
  const Stream stream;
  const auto allocate = [&](int64_t floats) {
    buffers_.push_back(backend.allocate(static_cast<size_t>(floats) * sizeof(float)));
    return buffers_.back().as<float>();
  };
  const auto upload = [&](float* to, const std::vector<float>& host) {
    if (!host.empty()) backend.upload(to, host.data(), host.size() * sizeof(float), stream);
    backend.synchronize(stream);
  };
  // Tables of many positions are made in pieces, because the plan of the memory counts them once.
  const auto inPieces = [&](int64_t floats_of_row, const auto& make) {
    const int64_t rows = std::max<int64_t>(kPieceFloats / std::max<int64_t>(floats_of_row, 1), 1);
    for (int64_t begin = 0; begin < positions; begin += rows) make(begin, std::min(begin + rows, positions));
  };
  const std::vector<RopeSpec> specs = ropeSpecs(spec);
  std::vector<RopeTable> ropes;
  for (const RopeSpec& rope : specs) {
    const RopeTableMaker maker(rope, positions);
    const int64_t pairs = maker.pairs();
    float* const cos = allocate(positions * pairs);
    float* const sin = allocate(positions * pairs);
    HostRopeTable rows;
    inPieces(pairs, [&](int64_t begin, int64_t end) {
      maker.make(begin, end, rows);
      upload(cos + begin * pairs, rows.cos);
      upload(sin + begin * pairs, rows.sin);
    });
    const int64_t dims = rope.kind == RopeKind::kNone ? 0 : rope.dims;
    ropes.push_back({cos, sin, static_cast<int32_t>(dims), rope.kind == RopeKind::kGptj});
  }
  const std::vector<AlibiSpec> alibis = alibiSpecs(spec);
  std::vector<const float*> device_slopes;
  for (const AlibiSpec& alibi : alibis) {
    const std::vector<float> slopes = alibiSlopes(alibi);
    float* const device = allocate(std::ssize(slopes));
    upload(device, slopes);
    device_slopes.push_back(device);
  }
  const std::vector<QueryScaling> scalings = queryScalings(spec);
  std::vector<const float*> device_scales;
  for (const QueryScaling& scaling : scalings) {
    float* const device = allocate(positions);
    inPieces(1, [&](int64_t begin, int64_t end) { upload(device + begin, makeQueryScales(scaling, begin, end)); });
    device_scales.push_back(device);
  }

  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    const bool scales = attention.query_scaling.beta != 0;
    of_layers_.push_back(
        {.rope = ropes[indexOf(specs, attention.rope)],
         .query_scales = scales ? device_scales[indexOf(scalings, attention.query_scaling)] : nullptr,
         .slopes = attention.alibi.heads == 0 ? nullptr : device_slopes[indexOf(alibis, attention.alibi)]});
  }
}

int64_t DevicePositionTables::bytes(const ModelSpec& spec, int64_t positions) {
  int64_t bytes = 0;
  for (const RopeSpec& rope : ropeSpecs(spec)) bytes += ropeTableBytes(rope, positions);
  for (const AlibiSpec& alibi : alibiSpecs(spec)) bytes += int64_t{alibi.count} * static_cast<int64_t>(sizeof(float));
  return bytes + std::ssize(queryScalings(spec)) * positions * static_cast<int64_t>(sizeof(float));
}

}  // namespace chorus
